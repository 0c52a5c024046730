"""From done chunks to rankings. Restartable and idempotent: rows are written again, the last move happens once."""

from __future__ import annotations

from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Count, Max, Min, Q
from django.db.models.functions import Now

from scoring.models import Chunk, Job, Query, QueryResult
from scoring.ranking import FLOAT, POSITION, ScoreBlock, ranked, same_scores
from scoring.services.transitions import transition
from scoring.states import ITEM_STATUSES, ChunkState, ItemStatus, JobState

ACTOR = "reconciler"
OPEN_CHUNKS = (ChunkState.PENDING, ChunkState.LEASED)
NOT_SCORED = ITEM_STATUSES.index(ItemStatus.FAILED)


def jobs_finalize() -> int:
    """End every job whose chunks have all ended. Returns how many jobs were ended."""
    waiting = Job.objects.filter(state__in=(JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING))
    ready = waiting.annotate(open=Count("chunks", filter=Q(chunks__state__in=OPEN_CHUNKS))).filter(open=0)
    return sum(job_finalize(job) for job in ready)


def job_finalize(job: Job) -> bool:
    """Write the rankings and move the job to its end. Returns False when another reconciler was faster."""
    if job.state == JobState.RUNNING and not transition(
        job, JobState.FINALIZING, actor=ACTOR, reason="all chunks ended"
    ):
        return False
    starts = Chunk.objects.filter(job=job).values_list("query_start", "query_count").order_by("query_start").distinct()
    for query_start, query_count in starts:
        with transaction.atomic():
            _rank_block(job, query_start, query_count)
    statistics = _statistics(job)
    ended = JobState.CANCELLED if job.state == JobState.CANCELLING else _end_state(statistics)
    failure = "" if ended != JobState.FAILED else _failure(job)
    return transition(
        job, ended, actor=ACTOR, reason="ranked", finished_at=Now(), statistics=statistics, failure=failure
    )


def _rank_block(job: Job, query_start: int, query_count: int) -> None:
    """Rankings of queries [query_start, +query_count) over all documents. Unscored chunks leave no results."""
    chunks = list(
        Chunk.objects.filter(job=job, query_start=query_start, state=ChunkState.DONE).order_by("document_start")
    )
    if not chunks:
        return
    parts = [ScoreBlock.unpack(chunk, (query_count, chunk.document_count)) for chunk in chunks]
    positions = np.concatenate(
        [np.arange(c.document_start, c.document_start + c.document_count) for c in chunks]
    )  # [D]
    raw = np.concatenate([part.raw for part in parts], axis=1)  # [Q, D]
    activated = np.concatenate([part.activated for part in parts], axis=1)  # [Q, D]
    statuses = np.concatenate([part.statuses for part in parts], axis=1)  # [Q, D]
    queries = Query.objects.filter(
        query_set=job.query_set_id, position__gte=query_start, position__lt=query_start + query_count
    ).order_by("position")
    rows = []
    for row, query in enumerate(queries):
        order = ranked(raw[row])[: job.top_k]
        plain = same_scores(raw[row, order], activated[row, order])
        rows.append(
            QueryResult(
                job=job,
                query=query,
                query_position=query.position,
                kept=len(order),
                scored=int(np.count_nonzero(~np.isnan(raw[row, order]))),
                positions=positions[order].astype(POSITION).tobytes(),
                raw_scores=raw[row, order].astype(FLOAT).tobytes(),
                scores=b"" if plain else activated[row, order].astype(FLOAT).tobytes(),
                statuses=statuses[row, order].tobytes(),
            )
        )
    QueryResult.objects.filter(job=job, query_position__in=[result.query_position for result in rows]).delete()
    QueryResult.objects.bulk_create(rows, batch_size=200)


def _statistics(job: Job) -> dict[str, Any]:
    """Counts over all pairs, not only the kept ones; pairs of chunks that were never scored are ``not_scored``."""
    by_status = np.zeros(len(ITEM_STATUSES), dtype=np.int64)
    pairs = tokens = 0
    done = Chunk.objects.filter(job=job, state=ChunkState.DONE)
    for statuses, report in done.values_list("statuses", "report").iterator(chunk_size=200):
        by_status += np.bincount(np.frombuffer(statuses, np.uint8), minlength=len(ITEM_STATUSES))
        pairs += len(statuses)
        tokens += report.get("prompt_tokens", 0)
    span = done.aggregate(first=Min("started_at"), last=Max("finished_at"))
    seconds = (span["last"] - span["first"]).total_seconds() if pairs else 0.0
    failed_chunks = Chunk.objects.filter(job=job, state=ChunkState.FAILED).count()
    return {
        "pairs": dict(zip(map(str, ITEM_STATUSES), by_status.tolist(), strict=True)),
        "not_scored": job.pair_count - pairs,
        "failed_chunks": failed_chunks,
        "prompt_tokens": tokens,
        "seconds": round(seconds, 3),
        "backends": sorted({b for b in done.values_list("report__backend", flat=True).distinct() if b}),
        "dtypes": sorted({d for d in done.values_list("report__dtype", flat=True).distinct() if d}),
    }


def _end_state(statistics: dict[str, Any]) -> JobState:
    scored = statistics["pairs"][ItemStatus.OK] + statistics["pairs"][ItemStatus.TRUNCATED]
    if not scored:
        return JobState.FAILED
    clean = not statistics["not_scored"] and not statistics["pairs"][ItemStatus.FAILED]
    return JobState.COMPLETED if clean else JobState.COMPLETED_WITH_ERRORS


def _failure(job: Job) -> str:
    error = Chunk.objects.filter(job=job, state=ChunkState.FAILED).values_list("error", flat=True).first()
    return f"No pair could be scored. {error or ''}".strip()
