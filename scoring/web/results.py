"""The results of a job as a page: queries to choose from, and the chosen one's ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from django.contrib.auth.models import User
from django.core.paginator import Page

from scoring.models import Annotation, QueryResult, Stage
from scoring.selectors.annotations import annotations_of
from scoring.selectors.jobs import RankedDocument, previous_ranks, previous_stage, ranked_documents, results_of
from scoring.selectors.result_lists import Having, results_having, results_searched, scores_of, stage_ties
from scoring.selectors.texts import query_texts_shown
from scoring.web.figures import Histogram, histogram
from scoring.web.paging import SayingPaginator

QUERIES_PER_PAGE: Final = 25
HITS_PER_PAGE: Final = 10
BARS: Final = 20


@dataclass(frozen=True, slots=True)
class Hit:
    """``share``: the score in percent of the query's best one, for the bar. ``before``: its rank in another stage.
    ``tied``: another document beside it has the same raw score. ``kept``: what the reader noted about it."""

    document: RankedDocument
    share: float
    before: int | None
    tied: bool
    kept: Annotation | None

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
    tag: str
    tags: Sequence[str]  # of the queries, the most frequent ones first
    having: str
    queries: Page[Any]
    ties: Mapping[str, int | None]  # of the whole stage
    chosen: QueryResult | None = None
    ranks: Page[Any] | None = None
    hits: tuple[Hit, ...] = ()
    before: int | None = None
    after: int | None = None
    previous: Stage | None = None  # the ranking that ``Hit.before`` is of
    scores: Histogram | None = None  # of the chosen query

    having_choices = Having.choices

    @property
    def filtered(self) -> bool:
        return bool(self.search or self.having or self.tag)


def results_page(stage: Stage, parameters: Mapping[str, str], *, user: User | None) -> ResultsPage:
    """``parameters``: ``search``, ``tag``, ``with`` (a Having) and ``page`` of the list of queries, ``query`` (a
    position) and ``rank`` (a page): everything that the page shows stands in its address."""
    search = parameters.get("search", "").strip()
    having = parameters.get("with", "") if parameters.get("with") in Having.values else ""
    tag = parameters.get("tag", "").strip()
    listed = results_having(results_searched(results_of(stage), stage, search, tag=tag), having, user=user)
    queries = SayingPaginator(listed.order_by("query_position"), QUERIES_PER_PAGE).get_page(parameters.get("page"))
    query_texts_shown(queries.object_list, stage.job.query_set)
    tags = [name for name, _ in stage.job.query_set.statistics.get("tags", [])]
    if tag and tag not in tags:
        tags.append(tag)  # a link may name one that is not among the most frequent
    listing: dict[str, Any] = {"tag": tag, "tags": tags}
    listing |= {"search": search, "having": having, "queries": queries, "ties": stage_ties(stage)}
    position = parameters.get("query", "")
    wanted = int(position) if position.isdecimal() and len(position) < 10 else None
    chosen = _chosen(stage, queries, wanted)
    if chosen is None:
        return ResultsPage(**listing)
    query_texts_shown([chosen], stage.job.query_set)
    ranks = SayingPaginator(range(chosen.kept), HITS_PER_PAGE).get_page(parameters.get("rank"))
    positions = listed.order_by("query_position").values_list("query_position", flat=True)
    return ResultsPage(
        **listing,
        previous=previous_stage(stage),
        chosen=chosen,
        ranks=ranks,
        hits=tuple(_hits(chosen, start=max(ranks.start_index() - 1, 0), user=user)),
        before=positions.filter(query_position__lt=chosen.query_position).last(),
        after=positions.filter(query_position__gt=chosen.query_position).first(),
        scores=score_histogram(chosen),
    )


def score_histogram(result: QueryResult) -> Histogram | None:
    """How the scores of one ranking lie; None for fewer than two of them."""
    scores = scores_of(result)
    if len(scores) < 2:
        return None
    counts, edges = np.histogram(scores.astype(np.float64), bins=BARS)
    labels = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
    return histogram(list(zip(labels, counts.tolist(), strict=True)), caption="score", unit="documents")


def _chosen(stage: Stage, queries: Page[Any], wanted: int | None) -> QueryResult | None:
    """The query asked for, else the first one listed."""
    first = next(iter(queries), None)
    position = wanted if wanted is not None else getattr(first, "query_position", None)
    if position is None:
        return None
    return results_of(stage).select_related("stage__job", "stage__source").filter(query_position=position).first()


def _hits(result: QueryResult, *, start: int, user: User | None) -> list[Hit]:
    """With one document more on either side, which tells whether the outermost ones are tied."""
    first = max(start - 1, 0)
    around = ranked_documents(result, start=first, limit=start - first + HITS_PER_PAGE + 1)
    ranked = around[start - first :][:HITS_PER_PAGE]
    best = (around[:1] if first == 0 else ranked_documents(result, limit=1))[0].score or 0.0 if around else 0.0
    before = previous_ranks(result.stage, [result], [ranked])
    scores = [row.raw_score for row in around]
    kept = annotations_of(
        user=user,
        job=result.stage.job,
        query_position=result.query_position,
        document_positions=[row.document.position for row in ranked],
    )
    return [
        Hit(
            row,
            _share(row.score, best),
            before.get((result.query_position, row.document.position)),
            _tied(scores, place),
            kept.get(row.document.position),
        )
        for place, row in enumerate(ranked, start=start - first)
    ]


def _share(score: float | None, best: float) -> float:
    return round(100 * max(score, 0.0) / best, 1) if score is not None and best > 0 else 0.0


def _tied(scores: Sequence[float | None], place: int) -> bool:
    """Whether a neighbour in the order has the same score."""
    beside = (other for other in (place - 1, place + 1) if 0 <= other < len(scores))
    return scores[place] is not None and any(scores[other] == scores[place] for other in beside)
