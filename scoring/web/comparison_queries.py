"""The queries of a comparison as rows, and one of them side by side. What is read is of the queries shown alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scoring.models import Comparison, Document, Judgement, Query, QueryResult, Stage
from scoring.ranking import POSITION
from scoring.selectors.comparison_measures import Measured
from scoring.selectors.comparisons import change_of
from scoring.selectors.jobs import RANKING_ARRAYS, RankedDocument, ranked_documents_of
from scoring.selectors.texts import texts_shown
from scoring.states import ItemStatus

Ranks = dict[int, int]  # document position -> rank


@dataclass(frozen=True, slots=True)
class QueryRow:
    """The numbers of one query, None where there is none. ``values`` are the first measure by stage; ``bar`` is where
    its change is drawn, (start, width) in percent; ``moved``, with its two ranks (0: not there), is what it disagrees
    about the most."""

    query: Query
    rbo: float | None
    rbo_top: float | None
    overlap: float | None
    tau: float | None
    shared: int
    values: list[float | None]
    change: float | None
    moved: Document | None
    moved_from: int
    moved_to: int

    @property
    def bar(self) -> tuple[float, float]:
        width = 50 * abs(self.change or 0.0)
        return (50.0 if (self.change or 0.0) >= 0 else round(50 - width, 2)), round(width, 2)


def query_rows(
    measured: Measured, stages: Sequence[Stage], other: int, positions: Sequence[int], *, with_documents: bool = False
) -> list[QueryRow]:
    """In the order of ``positions``."""
    arrays, pair, job = measured.arrays, other - 1, stages[0].job
    found = texts_shown(Query.objects.filter(query_set=job.query_set_id, position__in=positions), job.query_set)
    queries = {query.position: query for query in found}
    moved = arrays["moved"][pair]
    documents = {}
    if with_documents:
        wanted = [int(moved[0, position]) for position in positions]
        rows = texts_shown(
            Document.objects.filter(document_set=job.document_set_id, position__in=wanted), job.document_set
        )
        documents = {document.position: document for document in rows}
    change = change_of(measured, other) if measured.judged else None
    return [
        QueryRow(
            query=queries[at],
            **{name: _number(arrays[name][pair, at]) for name in ("rbo", "rbo_top", "overlap", "tau")},
            shared=int(arrays["shared"][pair, at]),
            values=[_number(value) for value in arrays["values"][:, 0, at]] if measured.judged else [],
            change=None if change is None else _number(change[at]),
            moved=documents.get(int(moved[0, at])),
            moved_from=int(moved[1, at]),
            moved_to=int(moved[2, at]),
        )
        for at in positions
    ]


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True, slots=True)
class SideHit:
    """``other``: its rank in the ranking that this one is compared with, None: not in it. ``grade`` None: unjudged.
    ``ranks`` in every column, for the lines between them; empty where ranks are not compared."""

    row: RankedDocument
    other: int | None
    grade: int | None
    ranks: list[int | None]

    @property
    def ranks_listed(self) -> str:
        return ",".join(str(rank or "") for rank in self.ranks)

    @property
    def change(self) -> int:
        """By how many ranks it stands higher than there; lower: below 0."""
        return self.other - self.row.rank if self.other else 0

    @property
    def moved(self) -> int:
        return abs(self.change)


@dataclass(frozen=True, slots=True)
class SideColumn:
    """One ranking. ``against``: the letter of the column that its shifts are from, and how many documents that has."""

    letter: str
    stage: Stage
    kept: int
    hits: list[SideHit]
    against: str
    against_kept: int


@dataclass(frozen=True, slots=True)
class Shared:
    """A document among the first of one ranking or of both; a rank of None: not in that list at all."""

    document: Document
    first: int | None
    second: int | None


@dataclass(frozen=True, slots=True)
class SideBySide:
    query: Query
    columns: list[SideColumn]
    judged: bool
    only_first: list[Shared]
    both: list[Shared]
    only_second: list[Shared]

    @property
    def unjudged(self) -> int:
        """Documents shown that nobody judged; empty ones are not to be judged."""
        hits = (hit for column in self.columns for hit in column.hits)
        return len({hit.row.document.pk for hit in hits if hit.grade is None and hit.row.status != ItemStatus.EMPTY})


def side_by_side(
    comparison: Comparison, stages: Sequence[Stage], other: int, position: int, top: int, comparable: bool
) -> SideBySide:
    """The first ``top`` of each ranking. Shifts are against the baseline, and of the baseline against ``other``;
    without them where ranks are not ``comparable``."""
    query_set = stages[0].job.query_set
    query = texts_shown(Query.objects.filter(query_set=query_set, position=position), query_set).get()
    ranks, shown = _ranks(stages, position), _shown(stages, position, top)
    grades = _grades(comparison, query, shown)
    columns = []
    for place, (stage, rows) in enumerate(zip(stages, shown, strict=True)):
        against = other if place == 0 else 0
        there: Mapping[int, int] = ranks[against] if comparable else {}
        hits = [
            SideHit(
                row,
                there.get(row.document.position),
                grades.get(row.document.external_id),
                [own.get(row.document.position) for own in ranks] if comparable else [],
            )
            for row in rows
        ]
        columns.append(SideColumn("ABCD"[place], stage, len(ranks[place]), hits, "ABCD"[against], len(ranks[against])))
    first, second = shown[0] if comparable else [], shown[other] if comparable else []
    blocks = _blocks(first, second, ranks[0], ranks[other])
    return SideBySide(query, columns, comparison.judgement_set_id is not None, *blocks)


def _ranks(stages: Sequence[Stage], position: int) -> list[Ranks]:
    """Of every document in each ranking, from 1."""
    rows = QueryResult.objects.filter(stage__in=stages, query_position=position)
    packed = dict(rows.values_list("stage", "positions"))
    every = [np.frombuffer(packed.get(stage.pk, b""), POSITION).tolist() for stage in stages]
    return [{document: rank for rank, document in enumerate(positions, start=1)} for positions in every]


def _shown(stages: Sequence[Stage], position: int, top: int) -> list[list[RankedDocument]]:
    rows = QueryResult.objects.filter(stage__in=stages, query_position=position).defer(*RANKING_ARRAYS)
    found = {result.stage_id: result for result in rows}
    shown: dict[int, list[RankedDocument]] = {}
    for document_set in {stage.job.document_set_id for stage in stages}:
        own = [stage for stage in stages if stage.pk in found and stage.job.document_set_id == document_set]
        for stage in own:
            found[stage.pk].stage = stage
        if own:
            ranked = ranked_documents_of(own[0].job, [found[stage.pk] for stage in own], limit=top)
            shown |= {stage.pk: documents for stage, documents in zip(own, ranked, strict=True)}
    return [shown.get(stage.pk, []) for stage in stages]


def _grades(comparison: Comparison, query: Query, shown: Iterable[Iterable[RankedDocument]]) -> dict[str, int]:
    if comparison.judgement_set_id is None:
        return {}
    judged = Judgement.objects.filter(judgement_set=comparison.judgement_set_id, query_id=query.external_id)
    names = {row.document.external_id for rows in shown for row in rows}
    return dict(judged.filter(document_id__in=names, grade__gte=0).values_list("document_id", "grade"))


def _blocks(
    first: Sequence[RankedDocument], second: Sequence[RankedDocument], ranks: Ranks, others: Ranks
) -> tuple[list[Shared], list[Shared], list[Shared]]:
    """Among the first of the one alone, of both, and of the other alone."""
    left, right = ({row.document.position: row.document for row in rows} for rows in (first, second))

    def shared(documents: Mapping[int, Document], chosen: Iterable[int]) -> list[Shared]:
        return [Shared(documents[at], ranks.get(at), others.get(at)) for at in documents if at in chosen]

    return (
        shared(left, left.keys() - right.keys()),
        shared(left, left.keys() & right.keys()),
        shared(right, right.keys() - left.keys()),
    )
