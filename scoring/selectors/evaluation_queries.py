"""The queries of an evaluation: filtered, ordered, and with their values; and its means by tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.models import Evaluation
from scoring.ranking import TOP
from scoring.selectors.evaluation import mean_of
from scoring.selectors.evaluations import EvaluationArrays, number_or_none
from scoring.selectors.tags import query_tags

LISTS: Final = {
    "evaluated": "in the means",
    "unjudged": "without judgements, left out",
    "without_results": "without results, counted 0",
    "without_relevant": "without a relevant document",
}
FEWEST_IN_SLICE: Final = 10  # below it a mean says little
BINS: Final = TOP + 1


@dataclass(frozen=True, slots=True)
class QueryValues:
    """Of one query; None where there is no number, or the query was left out. ``judged`` by cut-off."""

    values: dict[str, float | None]
    judged: dict[int, float | None]
    relevant: int | None
    kept: int | None
    unjudged_at_top: int | None


@dataclass(frozen=True, slots=True)
class Slice:
    """The ``means`` of ``count`` queries that have a tag, in the order of the measures."""

    tag: str
    count: int
    means: list[float | None]

    @property
    def is_small(self) -> bool:
        return self.count < FEWEST_IN_SLICE


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was found has been judged: means of Judged by cut-off, how many queries have 0, 1, … ``TOP``
    unjudged documents among their first, positions of the worst with that number, and the number of all of them."""

    judged: dict[int, float | None]
    histogram: list[int]
    worst: list[tuple[int, int]]
    unjudged_documents: int


def query_values(evaluation: Evaluation, arrays: EvaluationArrays, positions: Sequence[int]) -> dict[int, QueryValues]:
    """By position."""
    places = {int(position): place for place, position in enumerate(arrays.positions)}
    return {position: _values(evaluation, arrays, places.get(position)) for position in positions}


def _values(evaluation: Evaluation, arrays: EvaluationArrays, place: int | None) -> QueryValues:
    cutoffs = arrays.cutoffs.tolist()
    if place is None:
        return QueryValues(dict.fromkeys(evaluation.measures), dict.fromkeys(cutoffs), None, None, None)
    return QueryValues(
        values=dict(zip(evaluation.measures, map(number_or_none, arrays.values[:, place]), strict=True)),
        judged=dict(zip(cutoffs, map(number_or_none, arrays.judged[:, place]), strict=True)),
        relevant=int(arrays.relevant[place]),
        kept=int(arrays.kept[place]),
        unjudged_at_top=int(arrays.unjudged_at_top[place]),
    )


def query_order(
    arrays: EvaluationArrays, measures: Sequence[str], *, chosen: str, order: str, among: Sequence[Sequence[int]] = ()
) -> list[int]:
    """Positions of the queries of the list ``chosen`` that are in each of ``among``, by ``order``: a measure's name,
    ``unjudged`` or ``query``, descending with "-" before it. What has no number comes last."""
    found = np.asarray(arrays.lists()[chosen])
    for some in among:
        found = found[np.isin(found, some)]
    name = order.removeprefix("-")
    if name in measures:
        column = arrays.values[list(measures).index(name)]
    elif name == "unjudged":
        column = arrays.unjudged_at_top.astype(np.float64)
    else:
        return [int(one) for one in (found[::-1] if order.startswith("-") else found)]
    by_position = np.full(int(max(found.max(initial=0), arrays.positions.max(initial=0))) + 1, np.nan)
    by_position[arrays.positions] = column
    keys = by_position[found]
    keys = -keys if order.startswith("-") else keys
    return [int(one) for one in found[np.lexsort((found, keys))]]


def slices(evaluation: Evaluation, arrays: EvaluationArrays) -> list[Slice]:
    """By tag; the queries that are in the means."""
    found = []
    for tag, positions in query_tags(evaluation.stage.job.query_set).items():
        inside = np.isin(arrays.positions, positions)
        if count := int(np.count_nonzero(inside)):
            found.append(Slice(tag, count, [mean_of(row[inside]) for row in arrays.values]))
    return found


def coverage(arrays: EvaluationArrays, *, worst: int = 10) -> Coverage:
    unjudged = arrays.unjudged_at_top
    order = np.lexsort((arrays.positions, -unjudged))[:worst]
    return Coverage(
        judged={int(cutoff): mean_of(row) for cutoff, row in zip(arrays.cutoffs, arrays.judged, strict=True)},
        histogram=np.bincount(unjudged, minlength=BINS).tolist(),
        worst=[(int(arrays.positions[place]), int(unjudged[place])) for place in order if unjudged[place]],
        unjudged_documents=int(unjudged.sum()),
    )
