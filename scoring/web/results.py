"""The results of a job as a page: queries to choose from, and the chosen one's ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Q, QuerySet

from scoring.models import QueryResult, Stage
from scoring.selectors.jobs import RankedDocument, previous_ranks, previous_stage, ranked_documents, results_of
from scoring.selectors.texts import query_texts_shown, texts_gone

QUERIES_PER_PAGE = 25
HITS_PER_PAGE = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """``share``: the score in percent of the query's best one, for the bar. ``before``: its rank in another stage."""

    document: RankedDocument
    share: float
    before: int | None

    @property
    def change(self) -> int:
        """By how many ranks it went up; down: below 0."""
        return self.before - self.document.rank if self.before else 0

    @property
    def moved(self) -> int:
        return abs(self.change)


@dataclass(frozen=True, slots=True)
class ResultsPage:
    """``ranks`` is the page of ranks shown; ``before`` and ``after`` are query positions in the filtered order."""

    search: str
    queries: Page[Any]
    chosen: QueryResult | None
    ranks: Page[Any] | None
    hits: list[Hit]
    before: int | None
    after: int | None
    previous: Stage | None  # the ranking that ``Hit.before`` is of


def results_page(stage: Stage, parameters: Mapping[str, str]) -> ResultsPage:
    """``parameters``: ``search`` and ``page`` of the list of queries, ``query`` (a position) and ``rank`` (a page)."""
    search = parameters.get("search", "").strip()
    listed = _queries(stage, search)
    queries = Paginator(listed, QUERIES_PER_PAGE).get_page(parameters.get("page"))
    query_texts_shown(queries.object_list, stage.job.query_set)
    position = parameters.get("query", "")
    wanted = int(position) if position.isdecimal() and len(position) < 10 else None
    chosen = _chosen(stage, queries, wanted)
    if chosen is None:
        return ResultsPage(search, queries, None, None, [], None, None, None)
    query_texts_shown([chosen], stage.job.query_set)
    ranks = Paginator(range(chosen.kept), HITS_PER_PAGE).get_page(parameters.get("rank"))
    positions = listed.order_by("query_position").values_list("query_position", flat=True)
    return ResultsPage(
        search=search,
        previous=previous_stage(stage),
        queries=queries,
        chosen=chosen,
        ranks=ranks,
        hits=_hits(chosen, start=max(ranks.start_index() - 1, 0)),
        before=positions.filter(query_position__lt=chosen.query_position).last(),
        after=positions.filter(query_position__gt=chosen.query_position).first(),
    )


def _queries(stage: Stage, search: str) -> QuerySet[QueryResult]:
    listed = results_of(stage).order_by("query_position")
    if not search:
        return listed
    named = Q(query__external_id__icontains=search)
    return listed.filter(named if texts_gone(stage.job.query_set) else named | Q(query__text__icontains=search))


def _chosen(stage: Stage, queries: Page[Any], wanted: int | None) -> QueryResult | None:
    """The query asked for, else the first one listed."""
    first = next(iter(queries), None)
    position = wanted if wanted is not None else getattr(first, "query_position", None)
    if position is None:
        return None
    return results_of(stage).select_related("stage__job", "stage__source").filter(query_position=position).first()


def _hits(result: QueryResult, *, start: int) -> list[Hit]:
    ranked = ranked_documents(result, start=start, limit=HITS_PER_PAGE)
    first = ranked[:1] if start == 0 else ranked_documents(result, limit=1)
    best = (first[0].score if first else None) or 0.0
    before = previous_ranks(result.stage, [result], [ranked])
    return [
        Hit(row, _share(row.score, best), before.get((result.query_position, row.document.position))) for row in ranked
    ]


def _share(score: float | None, best: float) -> float:
    return round(100 * max(score, 0.0) / best, 1) if score is not None and best > 0 else 0.0
