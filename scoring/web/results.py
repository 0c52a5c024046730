"""The results of a job as a page: queries to choose from, and the chosen one's ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Q, QuerySet

from scoring.models import QueryResult, Stage
from scoring.selectors.jobs import RankedDocument, Ranking, ranked_documents, results_of

QUERIES_PER_PAGE = 25
HITS_PER_PAGE = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """``share``: the score in percent of the query's best one, for the bar."""

    document: RankedDocument
    share: float


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


def results_page(stage: Stage, parameters: Mapping[str, str]) -> ResultsPage:
    """``parameters``: ``search`` and ``page`` of the list of queries, ``query`` (a position) and ``rank`` (a page)."""
    search = parameters.get("search", "").strip()
    listed = _queries(stage, search)
    queries = Paginator(listed, QUERIES_PER_PAGE).get_page(parameters.get("page"))
    position = parameters.get("query", "")
    wanted = int(position) if position.isdecimal() and len(position) < 10 else None
    chosen = _chosen(stage, queries, wanted)
    if chosen is None:
        return ResultsPage(search, queries, None, None, [], None, None)
    ranks = Paginator(range(chosen.kept), HITS_PER_PAGE).get_page(parameters.get("rank"))
    positions = listed.order_by("query_position").values_list("query_position", flat=True)
    return ResultsPage(
        search=search,
        queries=queries,
        chosen=chosen,
        ranks=ranks,
        hits=_hits(chosen, start=max(ranks.start_index() - 1, 0)),
        before=positions.filter(query_position__lt=chosen.query_position).last(),
        after=positions.filter(query_position__gt=chosen.query_position).first(),
    )


def _queries(stage: Stage, search: str) -> QuerySet[QueryResult]:
    listed = results_of(stage).defer("positions", "raw_scores", "scores", "statuses").order_by("query_position")
    return (
        listed.filter(Q(query__text__icontains=search) | Q(query__external_id__icontains=search)) if search else listed
    )


def _chosen(stage: Stage, queries: Page[Any], wanted: int | None) -> QueryResult | None:
    """The query asked for, else the first one listed."""
    first = next(iter(queries), None)
    position = wanted if wanted is not None else getattr(first, "query_position", None)
    if position is None:
        return None
    return results_of(stage).select_related("stage__job").filter(query_position=position).first()


def _hits(result: QueryResult, *, start: int) -> list[Hit]:
    best = float(Ranking.of(result).block.activated[0]) if result.scored else 0.0
    return [
        Hit(document, _share(document.score, best))
        for document in ranked_documents(result, start=start, limit=HITS_PER_PAGE)
    ]


def _share(score: float | None, best: float) -> float:
    return round(100 * max(score, 0.0) / best, 1) if score is not None and best > 0 else 0.0
