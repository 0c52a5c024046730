"""From done chunks to rankings. Restartable and idempotent: rows are written again, the last move happens once."""

from __future__ import annotations

from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef
from django.db.models.functions import Now

from scoring import dispatch
from scoring.models import Chunk, Job, Query, QueryResult, Stage
from scoring.ranking import FLOAT, POSITION, ScoreBlock, ranked, same_scores
from scoring.services.stages import OPEN_STATES, stage_open
from scoring.services.transitions import transition
from scoring.states import ITEM_STATUSES, ChunkState, ItemStatus, JobEnd, JobState, StageState

ACTOR = "reconciler"
OPEN_CHUNKS = (ChunkState.PENDING, ChunkState.LEASED)
ADVANCING = (JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING)


def jobs_advance() -> int:
    """Rank every stage whose chunks have all ended, open those that waited for it, end the jobs that are through.

    Returns how many jobs were ended.
    """
    open_chunks = Chunk.objects.filter(stage=OuterRef("pk"), state__in=OPEN_CHUNKS)
    ready = Stage.objects.filter(state=StageState.RUNNING, job__state__in=ADVANCING).filter(~Exists(open_chunks))
    for stage in ready.select_related("job", "model").order_by("job", "index"):
        stage_finish(stage)
    open_stages = Stage.objects.filter(job=OuterRef("pk"), state__in=OPEN_STATES)
    return sum(job_end(job) for job in Job.objects.filter(state__in=ADVANCING).filter(~Exists(open_stages)))


def stage_finish(stage: Stage) -> bool:
    """Write the stage's rankings, then open its branches. Returns False when another reconciler was faster."""
    job = stage.job
    others = job.stages.filter(state__in=OPEN_STATES).exclude(pk=stage.pk)
    if job.state == JobState.RUNNING and not others.exists():
        transition(job, JobState.FINALIZING, actor=ACTOR, reason="all chunks ended")
    starts = Chunk.objects.filter(stage=stage).values_list("query_start", "query_count").order_by("query_start")
    for query_start, query_count in starts.distinct():
        with transaction.atomic():
            _rank_block(stage, query_start, query_count)
    figures = stage_statistics(stage)
    ended = transition(stage, StageState.DONE, actor=ACTOR, reason="ranked", finished_at=Now(), statistics=figures)
    if ended:
        for branch in stage.branches.filter(state=StageState.WAITING).select_related("job", "model"):
            _open_or_skip(branch, has_candidates=bool(_scored(figures)))
    return ended


def _open_or_skip(branch: Stage, *, has_candidates: bool) -> None:
    if has_candidates and branch.job.state == JobState.RUNNING:
        stage_open(stage=branch, actor=ACTOR)
        dispatch.workers_wake()
        return
    why = "its source ranked nothing" if branch.job.state == JobState.RUNNING else "the job was stopped"
    transition(branch, StageState.SKIPPED, actor=ACTOR, reason=why)
    for each in branch.branches.filter(state=StageState.WAITING).select_related("job", "model"):
        _open_or_skip(each, has_candidates=False)


def job_end(job: Job) -> bool:
    """Move a job whose stages have all ended to its end. Returns False when another reconciler was faster."""
    if job.state == JobState.RUNNING and not transition(
        job, JobState.FINALIZING, actor=ACTOR, reason="all chunks ended"
    ):
        return False
    statistics = _job_statistics(job)
    ended = JobEnd(job.end_reason).job_state if job.state == JobState.CANCELLING else _end_state(statistics)
    failure = _failure(job) if ended == JobState.FAILED else ""
    return transition(
        job, ended, actor=ACTOR, reason="ranked", finished_at=Now(), statistics=statistics, failure=failure
    )


def _rank_block(stage: Stage, query_start: int, query_count: int) -> None:
    """Rankings of queries [query_start, +query_count) over all documents. Unscored chunks leave no results."""
    chunks = list(
        Chunk.objects.filter(stage=stage, query_start=query_start, state=ChunkState.DONE).order_by("document_start")
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
        query_set=stage.job.query_set_id, position__gte=query_start, position__lt=query_start + query_count
    ).order_by("position")
    rows = []
    for row, query in enumerate(queries):
        order = ranked(raw[row])[: stage.top_k]
        plain = same_scores(raw[row, order], activated[row, order])
        rows.append(
            QueryResult(
                stage=stage,
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
    QueryResult.objects.filter(stage=stage, query_position__in=[result.query_position for result in rows]).delete()
    QueryResult.objects.bulk_create(rows, batch_size=200)


def stage_statistics(stage: Stage) -> dict[str, Any]:
    """Counts over all pairs, not only the kept ones; pairs of chunks that were never scored are ``not_scored``."""
    by_status = np.zeros(len(ITEM_STATUSES), dtype=np.int64)
    pairs = tokens = 0
    done = Chunk.objects.filter(stage=stage, state=ChunkState.DONE)
    for statuses, report in done.values_list("statuses", "report").iterator(chunk_size=200):
        by_status += np.bincount(np.frombuffer(statuses, np.uint8), minlength=len(ITEM_STATUSES))
        pairs += len(statuses)
        tokens += report.get("prompt_tokens", 0)
    span = done.aggregate(first=Min("started_at"), last=Max("finished_at"))
    seconds = (span["last"] - span["first"]).total_seconds() if pairs else 0.0
    return {
        "pairs": dict(zip(map(str, ITEM_STATUSES), by_status.tolist(), strict=True)),
        "not_scored": stage.pair_count - pairs,
        "failed_chunks": Chunk.objects.filter(stage=stage, state=ChunkState.FAILED).count(),
        "prompt_tokens": tokens,
        "seconds": round(seconds, 3),
        "backends": sorted({b for b in done.values_list("report__backend", flat=True).distinct() if b}),
        "dtypes": sorted({d for d in done.values_list("report__dtype", flat=True).distinct() if d}),
    }


def _job_statistics(job: Job) -> dict[str, Any]:
    """The stages' figures together; a stage that was skipped left all its pairs unscored."""
    stages = list(job.stages.all())
    figures = [stage.statistics for stage in stages if stage.statistics]
    skipped = sum(stage.pair_count for stage in stages if not stage.statistics)
    return {
        "pairs": {str(status): sum(each["pairs"][status] for each in figures) for status in ITEM_STATUSES},
        "not_scored": skipped + sum(each["not_scored"] for each in figures),
        "failed_chunks": sum(each["failed_chunks"] for each in figures),
        "prompt_tokens": sum(each["prompt_tokens"] for each in figures),
        "seconds": round(sum(each["seconds"] for each in figures), 3),
        "backends": sorted({name for each in figures for name in each["backends"]}),
        "dtypes": sorted({name for each in figures for name in each["dtypes"]}),
    }


def _scored(statistics: dict[str, Any]) -> int:
    return int(statistics["pairs"][ItemStatus.OK] + statistics["pairs"][ItemStatus.TRUNCATED])


def _end_state(statistics: dict[str, Any]) -> JobState:
    if not _scored(statistics):
        return JobState.FAILED
    clean = not statistics["not_scored"] and not statistics["pairs"][ItemStatus.FAILED]
    return JobState.COMPLETED if clean else JobState.COMPLETED_WITH_ERRORS


def _failure(job: Job) -> str:
    error = Chunk.objects.filter(job=job, state=ChunkState.FAILED).values_list("error", flat=True).first() or ""
    if job.end_reason == JobEnd.TOO_MANY_ERRORS:
        return f"Too many pairs failed, the job was stopped. {error}".strip()
    return f"No pair could be scored. {error}".strip()
