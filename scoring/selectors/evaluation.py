"""A stage's stored ranking measured against judgements. What is measured is the rank alone, never the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ir_measures import Measure

from assay.errors import AssayError
from scoring.measures import (
    DEFAULT_MEASURES,
    Grades,
    cutoff_of,
    is_condensed,
    judged_shares,
    measure_values,
    measures_parse,
)
from scoring.models import Document, Job, Judgement, JudgementSet, Query, QueryResult, Stage
from scoring.ranking import TOP
from scoring.selectors.jobs import Ranking
from scoring.states import JobState, StageState

__all__ = [
    "DEFAULT_MEASURES", "EVALUATED", "StageMeasures", "document_names", "is_ranked", "measures_parse", "stage_evaluate"
]  # fmt: skip

EVALUATED: Final = (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.CANCELLED, JobState.EXPIRED)
JUDGED_AT: Final = (5, 10, 20)  # always known, whatever was asked for
RANKS_AT_ONCE: Final = 500_000
LEAST_JUDGED_NONRELEVANT: Final = 5  # per query, in the median: below it condensed lists say nothing
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageMeasures:
    """M measures over the n queries that are in the mean, C cut-offs. A judged query without results counts 0.

    ``values`` float64 [M, n], NaN: undefined; ``worst`` and ``best`` float64 [M]: the means if documents of equal score
    stood otherwise; ``judged`` float64 [C, n] at ``cutoffs``; ``positions`` int32 [n] of the queries in their set,
    ascending; ``relevant``, ``kept``, ``unjudged_at_top`` int32 [n]: relevant documents that are known, documents in
    the ranking, those among the first ``TOP`` that nobody judged. Left out, as positions: ``unjudged``,
    ``without_relevant``. ``complete`` is False when the job did not score every pair: the means are then partial.
    """

    measures: list[str]
    query_ids: list[str]  # of all queries, by position
    positions: npt.NDArray[np.int32]
    values: Floats
    worst: Floats
    best: Floats
    cutoffs: list[int]
    judged: Floats
    relevant: npt.NDArray[np.int32]
    kept: npt.NDArray[np.int32]
    unjudged_at_top: npt.NDArray[np.int32]
    unjudged: list[int]
    without_relevant: list[int]
    complete: bool

    @property
    def means(self) -> dict[str, float | None]:
        return dict(zip(self.measures, map(mean_of, self.values), strict=True))

    @property
    def per_query(self) -> dict[str, dict[str, float | None]]:
        """query id -> measure -> value"""
        rows = np.where(np.isnan(self.values), None, self.values).T.tolist()  # type: ignore[call-overload]
        names = [self.query_ids[position] for position in self.positions]
        return {name: dict(zip(self.measures, row, strict=True)) for name, row in zip(names, rows, strict=True)}

    @property
    def evaluated(self) -> int:
        return len(self.positions)

    @property
    def queries(self) -> int:
        return len(self.query_ids)

    @property
    def unjudged_queries(self) -> list[str]:
        return [self.query_ids[position] for position in self.unjudged]

    @property
    def queries_without_results(self) -> list[str]:
        return [self.query_ids[position] for position in self.positions[self.kept == 0]]


@dataclass(slots=True)
class _Found:
    """What is gathered query by query. ``orders``: values in our order, in the worst and in the best of ties."""

    orders: list[dict[str, dict[str, float]]] = field(default_factory=lambda: [{}, {}, {}])
    judged: dict[int, dict[str, float]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    unjudged_at_top: dict[str, int] = field(default_factory=dict)


def is_ranked(stage: Stage) -> bool:
    """Whether it has its rankings, and nothing is about to change them."""
    return stage.state == StageState.DONE and stage.job.state in EVALUATED


def stage_evaluate(
    stage: Stage,
    judgements: JudgementSet,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    only_relevant: bool = False,
) -> StageMeasures:
    """Measure the stored ranks; ``only_relevant`` leaves out queries without a relevant document.

    Raises AssayError 409 for a job without results, 422 for unknown measures, for judgements of none of its queries,
    and for measures of judged documents alone where too few are judged non-relevant.
    """
    job = stage.job
    if job.state not in EVALUATED:
        message = f"Job '{job.name}' is {job.state}; it can be measured when it has ended."
        raise AssayError("job_not_ended", message, status=409)
    query_ids = list(Query.objects.filter(query_set=job.query_set_id).values_list("external_id", flat=True))
    grades = judgement_grades_of(judgements, set(query_ids))
    level = judgements.relevant_from
    parsed = measures_parse(measures, rel=level, grades=judgement_grades(judgements))
    if not grades:
        raise _do_not_match(job, judgements, len(query_ids))
    relevant = {query: sum(grade >= level for grade in own.values()) for query, own in grades.items()}
    _check_condensed(parsed, grades, relevant)
    counted = [
        position
        for position, query in enumerate(query_ids)
        if query in grades and (relevant[query] or not only_relevant)
    ]
    if not counted:
        raise _do_not_match(job, judgements, len(query_ids), "relevant documents of ")
    in_mean = {query_ids[position]: grades[query_ids[position]] for position in counted}
    cutoffs = sorted({*JUDGED_AT, *(cutoff for one in parsed if (cutoff := cutoff_of(one)))})
    found = _measured(stage, parsed, in_mean, cutoffs)
    names = [str(measure) for measure in parsed]
    values, worst, best = (_table(names, order, in_mean) for order in found.orders)
    return StageMeasures(
        measures=names,
        query_ids=query_ids,
        positions=np.array(counted, np.int32),
        values=values,
        worst=np.array([mean_of(row) for row in worst], np.float64),
        best=np.array([mean_of(row) for row in best], np.float64),
        cutoffs=cutoffs,
        judged=_table(cutoffs, found.judged, in_mean),
        relevant=np.array([relevant[query] for query in in_mean], np.int32),
        kept=np.array([found.kept.get(query, 0) for query in in_mean], np.int32),
        unjudged_at_top=np.array([found.unjudged_at_top.get(query, 0) for query in in_mean], np.int32),
        unjudged=[position for position, query in enumerate(query_ids) if query not in grades],
        without_relevant=[place for place, query in enumerate(query_ids) if query in grades and query not in in_mean],
        complete=job.state == JobState.COMPLETED,
    )


def mean_of(values: Floats) -> float | None:
    """Of those that are numbers, summed one after the other as ir-measures does; None of nothing."""
    numbers = values[~np.isnan(values)]
    return float(np.add.accumulate(numbers)[-1] / len(numbers)) if len(numbers) else None


def judgement_grades(judgements: JudgementSet) -> list[int]:
    """The grades that there are in it, ascending, without the negative ones."""
    rows = Judgement.objects.filter(judgement_set=judgements, grade__gte=0).order_by("grade")
    return list(rows.values_list("grade", flat=True).distinct())


def judgement_grades_of(judgements: JudgementSet, queries: set[str]) -> dict[str, dict[str, int]]:
    """By query id and document id. A negative grade means pooled but not judged: it is left out."""
    rows = Judgement.objects.filter(judgement_set=judgements, grade__gte=0)
    if len(queries) == 1:
        rows = rows.filter(query_id__in=queries)
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in rows.values_list("query_id", "document_id", "grade").iterator():
        if query in queries:
            grades.setdefault(query, {})[document] = grade
    return grades


def _check_condensed(measures: list[Measure], grades: Grades, relevant: Mapping[str, int]) -> None:
    condensed = [str(measure) for measure in measures if is_condensed(measure)]
    if not condensed:
        return
    middle = float(np.median([len(own) - relevant[query] for query, own in grades.items()]))
    if middle < LEAST_JUDGED_NONRELEVANT:
        raise AssayError(
            "too_few_judged",
            f"{', '.join(condensed)} cannot be computed: it looks at judged documents alone, and the median query has "
            f"{middle:g} that were judged not relevant. From {LEAST_JUDGED_NONRELEVANT} on it says something; judge "
            "more, or leave it out.",
            status=422,
            param="measures",
        )


def _measured(stage: Stage, measures: list[Measure], grades: Grades, cutoffs: list[int]) -> _Found:
    found = _Found()
    for batch in _batches(stage, grades):
        own = {query: grades[query] for query, _, _ in batch}
        rankings = {query: documents for query, documents, _ in batch}
        _gather(found.orders[0], measure_values(measures, own, rankings))
        tied = [row for row in batch if row[2] is not None]
        for order, sign in zip(found.orders[1:], (1, -1), strict=True):
            _gather(order, {str(measure): {} for measure in measures})
            turned = {query: _reordered(documents, groups, own[query], sign) for query, documents, groups in tied}
            _gather(order, measure_values(measures, {query: own[query] for query in turned}, turned))
        for cutoff in cutoffs:
            found.judged.setdefault(cutoff, {}).update(judged_shares(cutoff, own, rankings))
        for query, documents in rankings.items():
            found.kept[query] = len(documents)
            found.unjudged_at_top[query] = sum(one not in own[query] for one in documents[:TOP])
    without = {query: own for query, own in grades.items() if query not in found.kept}
    _gather(found.orders[0], measure_values(measures, without, {}))
    for order in found.orders[1:]:  # where nothing is tied every order is ours
        for name, values in found.orders[0].items():
            order[name] = values | order.get(name, {})
    return found


def _gather(into: dict[str, dict[str, float]], values: Mapping[str, Mapping[str, float]]) -> None:
    for name, by_query in values.items():
        into.setdefault(name, {}).update(by_query)


Row = tuple[str, list[str], Any]  # query id, document ids best first, int [n] of tied groups or None without ties


def _batches(stage: Stage, grades: Grades) -> Iterator[list[Row]]:
    name_of = document_names(stage.job)
    results = QueryResult.objects.filter(stage=stage).order_by("query_position").select_related("query")
    batch: list[Row] = []
    ranks = 0
    for result in results.iterator(chunk_size=50):
        query = result.query.external_id
        if query not in grades:
            continue
        ranking = Ranking.of(result)
        batch.append((query, [name_of[position] for position in ranking.positions.tolist()], _tied(ranking.block.raw)))
        ranks += result.kept
        if ranks >= RANKS_AT_ONCE:
            yield batch
            batch, ranks = [], 0
    if batch:
        yield batch


def _tied(raw: npt.NDArray[np.float32]) -> Any:
    """The number of each rank's group of equal scores; None where all differ. What has no score is never tied."""
    changes = np.ones(len(raw), np.int64)
    changes[1:] = raw[1:] != raw[:-1]
    return None if changes.all() else np.add.accumulate(changes)


def _reordered(documents: list[str], groups: Any, grades: Mapping[str, int], sign: int) -> list[str]:
    """Within each tied group by grade: the lowest first for ``sign`` 1, the highest first for -1."""
    keys = np.array([sign * grades.get(document, 0) for document in documents])
    return [documents[place] for place in np.lexsort((keys, groups))]


def _table(names: Sequence[Any], found: Mapping[Any, Mapping[str, float]], queries: Grades) -> Floats:
    """float64 [names, queries], NaN where there is no number."""
    rows = [[found.get(name, {}).get(query, np.nan) for query in queries] for name in names]
    return np.array(rows, np.float64).reshape(len(names), len(queries))


def _do_not_match(job: Job, judgements: JudgementSet, queries: int, what: str = "") -> AssayError:
    return AssayError(
        "judgements_do_not_match",
        f"Judgement set '{judgements.name}' names {what}none of the {queries:,} queries of '{job.query_set.name}'. "
        "Both must use the same query ids.",
        status=422,
        param="judgement_set",
    )


def document_names(job: Job) -> list[str]:
    """External ids by position."""
    documents = Document.objects.filter(document_set=job.document_set_id).order_by("position")
    return list(documents.values_list("external_id", flat=True))
