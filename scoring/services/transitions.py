"""The one function that changes a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db import connection, models, transaction

from scoring.models import Job, Transition
from scoring.states import may_move

RECONCILER: Final = "reconciler"  # as the actor of a move


class MoveRefused(Exception):
    """The plan of states has no such move: a fault in our code, not in the input."""


def transition(
    instance: models.Model,
    to: models.TextChoices,
    *,
    actor: str,
    reason: str = "",
    detail: dict[str, Any] | None = None,
    where: models.Q | None = None,
    **fields: Any,
) -> bool:
    """Move ``instance`` from the state it was read in to ``to``, setting ``fields`` in the same UPDATE.

    Returns False when the row no longer is in that state (or no longer satisfies ``where``): somebody else was faster,
    and nothing was changed. Raises MoveRefused for a move that ``scoring.states`` does not list.
    """
    table = type(instance)
    old = type(to)(instance.state)  # type: ignore[attr-defined]
    if not may_move(old, to):
        raise MoveRefused(f"{table.__name__} {instance.pk} may not go from {old} to {to}.")
    with transaction.atomic():
        rows = table._default_manager.filter(pk=instance.pk, state=old)
        moved = (rows.filter(where) if where is not None else rows).update(state=to, **fields)
        if not moved:
            return False
        transition_record(instance, old, to, actor=actor, reason=reason, detail=detail).save()
    instance.state = to  # type: ignore[attr-defined]
    for name, value in fields.items():
        if not hasattr(value, "resolve_expression"):
            setattr(instance, name, value)
    return True


def transition_record(
    instance: models.Model,
    old: str,
    to: str,
    *,
    actor: str,
    reason: str = "",
    detail: dict[str, Any] | None = None,
) -> Transition:
    """The log row of a move, unsaved."""
    return Transition(
        entity=instance._meta.model_name or "",
        entity_id=str(instance.pk),
        job_id=instance.pk if isinstance(instance, Job) else getattr(instance, "job_id", None),
        from_state=old,
        to_state=to,
        actor=actor,
        reason=reason,
        detail=detail or {},
    )


def transitions_record(
    table: type[models.Model], ids: Sequence[int], old: str, to: str, *, job: Job, actor: str, reason: str
) -> None:
    """The log rows of a bulk move of parts of ``job``, in one statement however many there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {Transition._meta.db_table} "
            "(entity, entity_id, job_id, from_state, to_state, actor, reason, detail) "
            "SELECT %s, id::text, %s, %s, %s, %s, %s, '{}' FROM unnest(%s::bigint[]) AS id",
            [table._meta.model_name, job.pk, old, to, actor, reason, list(ids)],
        )
