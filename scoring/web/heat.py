"""A late-interaction pair as the page draws it: each document token in eleven steps of colour.

Shapes: m query tokens and d document tokens that are compared; n tokens of the document's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scoring.payloads import SyncExplanation, SyncMatches, SyncTokenRow
from scoring.services.explanations import similarities

STEPS: Final = 10  # classes h0 … h10
MOST_COLUMNS: Final = 512
AROUND: Final = 8  # tokens shown on either side of a counted one, where not all are
PLAIN: Final = "text"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Token:
    """``step``: its colour for all query tokens together; None: it is not compared. ``counted``: by how many."""

    text: str
    use: str
    step: int | None = None
    column: int | None = None  # among the d
    counted: int = 0
    gap: bool = False  # tokens before it are left out

    @property
    def grey(self) -> bool:
        return self.use != PLAIN

    @property
    def word(self) -> str:
        return self.text.strip() or "·"

    @property
    def joined(self) -> bool:
        """A sub-word: no blank before it."""
        return not self.text[:1].isspace()


@dataclass(frozen=True, slots=True)
class QueryToken:
    """One query token, its counted document token and what that adds."""

    number: int
    token: Token
    match: str
    match_place: int
    similarity: float
    contribution: float | None
    cells: list[tuple[int, bool]]  # of the columns shown: step, counted


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``name``: of the ``data`` on the page, for ``static/explanation.js``; ``columns``: the tokens of the matrix."""

    name: str
    query: list[QueryToken]
    document: list[Token]
    columns: list[Token]
    total: float
    windowed: bool
    left_out: int
    data: dict[str, Any]

    @property
    def legend(self) -> range:
        return range(STEPS + 1)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The tops of the two ranges of colours, over all pairs of a page: of similarities, and of what one document token
    gives to all query tokens."""

    similarity: float
    given: float


def ceiling_of(explanations: Sequence[SyncExplanation]) -> Ceiling:
    matches = [why.matches for why in explanations if why.matches]
    similar = [float(np.nanmax(similarities(each), initial=0.0)) for each in matches]
    given = [float(_given(each).max(initial=0.0)) for each in matches]
    return Ceiling(max(similar, default=0.0) or 1.0, max(given, default=0.0) or 1.0)


def _given(matches: SyncMatches) -> npt.NDArray[np.float64]:
    """[d]: the contributions that each document token was counted for."""
    given = np.zeros(len(matches.document_places))
    np.add.at(given, matches.best, [each or 0.0 for each in matches.contributions])
    return given


def heat_map(why: SyncExplanation, ceiling: Ceiling, *, name: str) -> HeatMap | None:
    """None for a pair without token by token scores."""
    matches = why.matches
    if matches is None:
        return None
    query_row, document_row = why.rows
    values = np.nan_to_num(similarities(matches))  # [m, d]
    steps = _steps(values, ceiling.similarity)
    counted = np.bincount(matches.best, minlength=values.shape[1])  # [d]
    whole = _steps(_given(matches), ceiling.given)
    shown = _columns(matches, values.shape[1])
    document = _document(document_row, matches, whole, counted, shown)
    columns = [token for token in document if token.column is not None]
    return HeatMap(
        name=name,
        query=[_query_token(i, matches, query_row, document_row, values, steps, shown) for i in range(len(values))],
        document=document,
        columns=columns,
        total=sum(each or 0.0 for each in matches.contributions),
        windowed=len(shown) < values.shape[1],
        left_out=values.shape[1] - len(shown),
        data={
            "all": [int(whole[column]) for column in shown],
            "rows": steps[:, shown].tolist(),
            "best": [shown.index(best) for best in matches.best],
        },
    )


def _steps(values: npt.NDArray[Any], ceiling: float) -> npt.NDArray[np.int64]:
    """0 … STEPS; what is below nothing is nothing."""
    return np.rint(STEPS * np.clip(values / ceiling, 0, 1)).astype(np.int64)


def _columns(matches: SyncMatches, width: int) -> list[int]:
    """The document tokens shown: all, or of many those around the counted ones."""
    if width <= MOST_COLUMNS:
        return list(range(width))
    near = {column for best in matches.best for column in range(best - AROUND, best + AROUND + 1)}
    return sorted(column for column in near if 0 <= column < width)


def _document(
    row: SyncTokenRow,
    matches: SyncMatches,
    whole: npt.NDArray[np.int64],
    counted: npt.NDArray[np.int64],
    shown: Sequence[int],
) -> list[Token]:
    column_at = {place: column for column, place in enumerate(matches.document_places)}
    kept = set(shown)
    windowed = len(kept) < len(column_at)
    tokens: list[Token] = []
    gap = False
    for place, (text, use) in enumerate(row.tokens):
        column = column_at.get(place)
        if windowed and (column is None or column not in kept):
            gap = True
            continue
        step = None if column is None else int(whole[column])
        tokens.append(Token(text, use, step, column, 0 if column is None else int(counted[column]), gap))
        gap = False
    return tokens


def _query_token(
    number: int,
    matches: SyncMatches,
    query_row: SyncTokenRow,
    document_row: SyncTokenRow,
    values: Floats,
    steps: npt.NDArray[np.int64],
    shown: Sequence[int],
) -> QueryToken:
    place, best = matches.query_places[number], matches.best[number]
    match_place = matches.document_places[best]
    return QueryToken(
        number=number,
        token=Token(query_row.texts[place], query_row.uses[place]),
        match=document_row.texts[match_place].strip(),
        match_place=match_place + 1,
        similarity=float(values[number, best]),
        contribution=matches.contributions[number],
        cells=[(int(steps[number, column]), column == best) for column in shown],
    )
