"""Reads about pools: which pairs one would hold, how far its judging is, what a judge sees of a pair."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np
from django.contrib.auth.models import User
from django.db.models import Count, Exists, IntegerField, OuterRef, Q, Subquery
from django.db.models import QuerySet as Rows
from django.db.models.functions import Coalesce, Now

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import (
    Document,
    Judge,
    Judgement,
    JudgementSet,
    PairClaim,
    Pool,
    PoolPair,
    Query,
    QueryResult,
    RunSet,
    Stage,
    Verdict,
    VerdictSource,
)
from scoring.models import DocumentSet as Documents
from scoring.models import QuerySet as Queries
from scoring.ranking import POSITION
from scoring.selectors.packed import packed_part
from scoring.selectors.runs import run_entries
from scoring.selectors.texts import texts_shown

MOST_PAIRS: Final = 100_000
DEEPEST: Final = 1_000
NAMED: Final = 5  # in a sentence about many
USUAL_SECONDS: Final = 10.0  # per pair, of somebody who has not judged yet
PACE_VERDICTS: Final = 200
PACE_LEAST: Final = 10
A_BREAK: Final = timedelta(minutes=3)  # a longer pause is no judging

Pair = tuple[str, str]  # query id, document id


@dataclass(frozen=True, slots=True)
class JudgeProgress:
    judge: Judge
    graded: int
    cannot: int


@dataclass(frozen=True, slots=True)
class JudgingProgress:
    """``done``: pairs with as many verdicts as the pool wants, or adjudicated. ``mine``: that the asking person has
    judged."""

    pairs: int
    done: int
    mine: int


@dataclass(frozen=True, slots=True)
class PoolProgress(JudgingProgress):
    """``left``: pairs that may still be handed to the asking person."""

    left: int
    judges: list[JudgeProgress]


@dataclass(frozen=True, slots=True)
class PairShown:
    """A pair with its texts. ``verdict``: what the asking person said of it."""

    pair: PoolPair
    query: Query
    document: Document
    verdict: Verdict | None = None

    @property
    def narrative(self) -> str:
        return str(self.query.metadata.get("narrative", ""))


def pools_of(principal: Principal) -> Rows[Pool]:
    pools = Pool.objects.for_team(principal.team).select_related("query_set", "document_set", "base", "created_by")
    return pools.annotate(pair_count=Count("pairs")).order_by("-created_at")


def pool_candidates(
    *,
    stages: Sequence[Stage],
    run_set: RunSet | None,
    query_set: Queries,
    document_set: Documents,
    depth: int,
    base: JudgementSet | None,
    query_ids: Collection[str] = (),
) -> dict[Pair, dict[str, int]]:
    """The pairs among the first ``depth`` of any of the rankings that ``base`` does not grade, each with its rank by
    source; of ``query_ids`` alone if any are given. Documents without text are left out: there is nothing to judge.

    Raises AssayError 422 ``no_such_query``, ``pool_too_large``.
    """
    found: dict[Pair, dict[str, int]] = {}
    wanted = set(query_ids)
    known = set(query_set.queries.values_list("external_id", flat=True))
    if unknown := sorted(wanted - known):
        more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
        message = (
            f"The query set '{query_set.name}' has no query {', '.join(map(repr, unknown[:NAMED]))}{more}; give ids of "
            "its file, or none for all queries."
        )
        raise AssayError("no_such_query", message, status=422, param="query_ids")
    asked = wanted or known
    sources = [(f"stage {stage.pk}", _stage_tops(stage, depth)) for stage in stages]
    if run_set is not None:
        sources.append((f"run {run_set.pk}", _run_tops(run_set, depth)))
    judged = _judged(base, asked)
    for source, rows in sources:
        for query_id, document, rank in rows:
            if query_id in asked and (query_id, document) not in judged:
                found.setdefault((query_id, document), {})[source] = rank
                if len(found) > MOST_PAIRS:
                    message = f"The pool would have more than {MOST_PAIRS:,} pairs; take fewer rankings or a smaller k."
                    raise AssayError("pool_too_large", message, status=422, param="k")
    texts = Document.objects.filter(document_set=document_set, external_id__in={pair[1] for pair in found})
    with_text = set(texts.filter(is_empty=False).values_list("external_id", flat=True))
    return {pair: origin for pair, origin in found.items() if pair[1] in with_text}


def _stage_tops(stage: Stage, depth: int) -> Iterator[tuple[str, str, int]]:
    rows = list(
        QueryResult.objects.filter(stage=stage).values_list(
            "query__external_id", packed_part("positions", POSITION.itemsize, count=depth)
        )
    )
    positions = {query_id: np.frombuffer(packed, POSITION).tolist() for query_id, packed in rows}
    wanted = {position for own in positions.values() for position in own}
    documents = Document.objects.filter(document_set=stage.job.document_set_id, position__in=wanted)
    names = dict(documents.values_list("position", "external_id"))
    for query_id, own in positions.items():
        for rank, position in enumerate(own, start=1):
            yield query_id, names[position], rank


def _run_tops(run_set: RunSet, depth: int) -> Iterator[tuple[str, str, int]]:
    query, rank = "", 0
    for query_id, document_id in run_entries(run_set=run_set).values_list("query_id", "document_id").iterator():
        rank = rank + 1 if query_id == query else 1
        query = query_id
        if rank <= depth:
            yield query_id, document_id, rank


def _judged(base: JudgementSet | None, query_ids: set[str]) -> set[Pair]:
    if base is None:
        return set()
    rows = Judgement.objects.filter(judgement_set=base, grade__gte=0).values_list("query_id", "document_id")
    return {pair for pair in rows.iterator() if pair[0] in query_ids}


def judging_pace(user: User | None) -> float:
    """Seconds per pair of this person, by the gaps between their latest verdicts; what is usual if these are few."""
    own = Verdict.objects.filter(judge__user=user, source=VerdictSource.BLIND) if user else Verdict.objects.none()
    moments = list(own.order_by("-decided_at").values_list("decided_at", flat=True)[:PACE_VERDICTS])
    gaps = [later - earlier for later, earlier in pairwise(moments)]
    seconds = [gap.total_seconds() for gap in gaps if gap < A_BREAK]
    return max(median(seconds), 1.0) if len(seconds) >= PACE_LEAST else USUAL_SECONDS


def judged_by(user: User | None) -> Exists:
    return Exists(Verdict.objects.filter(pair=OuterRef("pk"), judge__user=user, source=VerdictSource.BLIND))


def pairs_open(pool: Pool, user: User) -> Rows[PoolPair]:
    """What may be handed to ``user``: not judged by them, and fewer verdicts and claims of others than the quorum."""
    claims = PairClaim.objects.filter(pair=OuterRef("pk"), expires_at__gt=Now()).exclude(user=user)
    given = Verdict.objects.filter(pair=OuterRef("pk"), source=VerdictSource.BLIND)
    pairs = PoolPair.objects.filter(~judged_by(user), pool=pool)
    return pairs.annotate(taken=_count(claims) + _count(given)).filter(taken__lt=pool.quorum).order_by("place")


def _count(rows: Rows[Any]) -> Coalesce:
    """How many of ``rows``, which refer to a pair, as a value of that pair's row."""
    counted = rows.order_by().values("pair").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def judging_progress(pool: Pool, user: User | None) -> JudgingProgress:
    """Counted from verdicts, since it is read after each one."""
    verdicts = Verdict.objects.filter(pair__pool=pool).order_by()
    blind = verdicts.filter(source=VerdictSource.BLIND)
    full = blind.values("pair").annotate(count=Count("pk")).filter(count__gte=pool.quorum).values("pair")
    ruled = verdicts.filter(source=VerdictSource.ADJUDICATED).values("pair")
    return JudgingProgress(
        pairs=pool.pairs.count(),
        done=full.union(ruled).count(),
        mine=blind.filter(judge__user=user).count() if user else 0,
    )


def pool_progress(pool: Pool, user: User | None) -> PoolProgress:
    judges = Judge.objects.filter(pool=pool).annotate(
        graded=Count("verdicts", filter=Q(verdicts__grade__isnull=False)),
        cannot=Count("verdicts", filter=Q(verdicts__grade=None)),
    )
    return PoolProgress(
        **asdict(judging_progress(pool, user)),
        left=pairs_open(pool, user).count() if user else 0,
        judges=[JudgeProgress(judge, judge.graded, judge.cannot) for judge in judges.order_by("-graded", "pk")],
    )


def pairs_shown(pool: Pool, pairs: Sequence[PoolPair], user: User | None = None) -> list[PairShown]:
    """``pairs`` with their texts, in the order given; one whose texts' rows are gone is left out."""
    queries = Query.objects.filter(query_set=pool.query_set_id, external_id__in={pair.query_id for pair in pairs})
    documents = Document.objects.filter(
        document_set=pool.document_set_id, external_id__in={pair.document_id for pair in pairs}
    )
    asked = {query.external_id: query for query in texts_shown(queries, pool.query_set)}
    read = {document.external_id: document for document in texts_shown(documents, pool.document_set)}
    own = Verdict.objects.filter(pair__in=pairs, judge__user=user, source=VerdictSource.BLIND) if user else ()
    verdicts: dict[Any, Verdict] = {verdict.pair_id: verdict for verdict in own}
    return [
        PairShown(pair, asked[pair.query_id], read[pair.document_id], verdicts.get(pair.pk))
        for pair in pairs
        if pair.query_id in asked and pair.document_id in read
    ]
