"""Which column becomes which field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from assay.errors import AssayError


@dataclass(frozen=True, slots=True)
class Role:
    """A field to be filled, and the column names it is usually found under (compared in lower case)."""

    name: str
    required: bool
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """``columns``: role to column. ``metadata``: columns kept beside the text; None: all that no role took."""

    columns: dict[str, str] = field(default_factory=dict)
    metadata: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**self.columns, "metadata": None if self.metadata is None else list(self.metadata)}

    def kept(self, values: dict[str, Any]) -> dict[str, Any]:
        """The metadata of one row."""
        if self.metadata is not None:
            return {name: value for name, value in values.items() if name in self.metadata}
        taken = self.columns.values()
        return {name: value for name, value in values.items() if name not in taken}

    @classmethod
    def resolve(
        cls,
        given: dict[str, Any] | None,
        *,
        roles: Sequence[Role],
        columns: Sequence[str],
        any_of: Sequence[str] = (),
    ) -> Self:
        """``given`` completed by guesses for the roles it leaves out. Raises AssayError 422 naming the columns found.

        A role given as null is left unmapped; of the roles ``any_of``, one at least must have a column.
        """
        given = dict(given or {})
        metadata = given.pop("metadata", None)
        known = {role.name for role in roles}
        if unknown := sorted(set(given) - known):
            valid = f"roles are {_quoted(sorted(known))} and 'metadata'"
            raise _refusal(f"The mapping names {_quoted(unknown)}", valid)
        chosen: dict[str, str] = {}
        for role in roles:
            column = given[role.name] if role.name in given else _guess(role, columns, taken=set(chosen.values()))
            if column is not None and column not in columns:
                what = f"The mapping takes '{role.name}' from column {column!r}"
                raise _refusal(what, f"the columns are {_quoted(columns)}")
            if column is None and role.required:
                raise _refusal(
                    f"No column for '{role.name}' was given or could be guessed",
                    f'the columns are {_quoted(columns)}; give mapping {{"{role.name}": "<column>"}}',
                )
            if column is not None:
                chosen[role.name] = column
        if any_of and not any(role in chosen for role in any_of):
            raise _refusal(
                f"No column for {' or '.join(map(repr, any_of))} was given or could be guessed",
                f'the columns are {_quoted(columns)}; give mapping {{"{any_of[0]}": "<column>"}}',
            )
        if metadata is None:
            return cls(chosen)
        if not isinstance(metadata, list) or not all(column in columns for column in metadata):
            valid = f"it must be a list of columns among {_quoted(columns)}"
            raise _refusal(f"The mapping's metadata is {metadata!r}", valid)
        return cls(chosen, tuple(metadata))


def _guess(role: Role, columns: Sequence[str], *, taken: set[str]) -> str | None:
    free = {column.strip().lower(): column for column in reversed(columns) if column not in taken}
    return next((free[alias] for alias in role.aliases if alias in free), None)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _refusal(what: str, instead: str) -> AssayError:
    return AssayError("bad_mapping", f"{what}; {instead}.", status=422, param="mapping")
