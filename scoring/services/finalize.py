"""From done chunks to rankings. Restartable and idempotent: rows are written again, the last move happens once.

A stage is ranked window by window of queries, so that memory is bounded however large it is.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
from django.db import transaction
from django.db.models import BinaryField, Count, Exists, F, Max, Min, OuterRef, Sum, Value
from django.db.models.functions import Greatest, Least, Now, Substr

from scoring import dispatch
from scoring.models import Chunk, Job, Query, QueryResult, Stage
from scoring.ranking import ABSENT, FAILED, FLOAT, POSITION, ScoreBlock, ranked, same_scores
from scoring.services.stages import OPEN_STATES, stage_open
from scoring.services.transitions import transition
from scoring.states import ITEM_STATUSES, ChunkState, ItemStatus, JobEnd, JobState, StageState

ACTOR = "reconciler"
WINDOW_BYTES: Final = 256 << 20
INSERT_BYTES: Final = 16 << 20
CELL_BYTES: Final = 13  # of one pair while it is ranked, and at most when it is kept
ADVANCING = (JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING)


def jobs_advance() -> int:
    """Rank every stage whose chunks have all ended, open those that waited for it, end the jobs that are through.

    Returns how many jobs were ended.
    """
    chunks = Chunk.objects.filter(stage=OuterRef("pk"))
    # Two questions, each answered by a small index of its own; asked as one, every chunk would be looked at.
    ready = Stage.objects.filter(
        ~Exists(chunks.filter(state=ChunkState.PENDING)),
        ~Exists(chunks.filter(state=ChunkState.LEASED)),
        state=StageState.RUNNING,
        job__state__in=ADVANCING,
    )
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
    width = stage.pair_count // job.query_count
    for query_start in range(0, job.query_count, step := max(1, WINDOW_BYTES // (CELL_BYTES * width))):
        with transaction.atomic():
            _rank_window(stage, query_start, min(query_start + step, job.query_count), width)
    figures = stage_statistics(stage)
    ended = transition(stage, StageState.DONE, actor=ACTOR, reason="ranked", finished_at=Now(), statistics=figures)
    if ended:
        for branch in stage.branches.filter(state=StageState.WAITING).select_related("job", "model"):
            _open_or_skip(branch, has_candidates=bool(_scored(figures)))
    return ended


def _open_or_skip(branch: Stage, *, has_candidates: bool) -> None:
    stopped = branch.job.state == JobState.CANCELLING
    if has_candidates and not stopped:  # a paused job's too: its chunks wait for the resume
        stage_open(stage=branch, actor=ACTOR)
        dispatch.workers_wake()
        return
    why = "the job was stopped" if stopped else "its source ranked nothing"
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


def _rank_window(stage: Stage, query_start: int, query_end: int, width: int) -> None:
    """Rankings of queries [query_start, query_end), each over ``width`` documents. Unscored chunks leave no results."""
    block = _scores(stage, query_start, query_end, width)
    queries = Query.objects.filter(
        query_set=stage.job.query_set_id, position__gte=query_start, position__lt=query_end
    ).order_by("position")
    QueryResult.objects.filter(stage=stage, query_position__gte=query_start, query_position__lt=query_end).delete()
    results = (_result(stage, query, block, query.position - query_start) for query in queries.iterator(chunk_size=500))
    at_once = max(1, INSERT_BYTES // (CELL_BYTES * min(width, stage.top_k or width)))
    kept = filter(None, results)
    while part := list(itertools.islice(kept, at_once)):
        QueryResult.objects.bulk_create(part)


def _scores(stage: Stage, query_start: int, query_end: int, width: int) -> ScoreBlock:
    """[query_end - query_start, width]; of each chunk only the rows of these queries are read."""
    block = ScoreBlock.blank((query_end - query_start, width))
    chunks = Chunk.objects.filter(
        stage=stage,
        state__in=(ChunkState.DONE, ChunkState.FAILED),
        query_start__lt=query_end,
        query_start__gt=query_start - F("query_count"),
    )
    first = Greatest("query_start", Value(query_start))
    cells = (Least(F("query_start") + F("query_count"), Value(query_end)) - first) * F("document_count")
    skipped = (first - F("query_start")) * F("document_count")
    slices = [
        Substr(column, skipped * size + 1, cells * size, output_field=BinaryField())
        for column, size in (("raw_scores", 4), ("scores", 4), ("statuses", 1))
    ]
    places = ("query_start", "query_count", "document_start", "document_count")
    rows = chunks.values_list("state", *places, *slices).iterator(chunk_size=50)
    for state, start, queries, left, documents, raw, scores, statuses in rows:
        begin, end = max(start, query_start) - query_start, min(start + queries, query_end) - query_start
        place = np.s_[begin:end, left : left + documents]
        if state == ChunkState.FAILED:
            block.statuses[place] = FAILED
            continue
        part = ScoreBlock.of_bytes(raw, scores, statuses, (end - begin, documents))
        block.raw[place], block.activated[place], block.statuses[place] = part.raw, part.activated, part.statuses
    return block


def _result(stage: Stage, query: Query, block: ScoreBlock, row: int) -> QueryResult | None:
    """The query's ranking, over the documents for which there is a pair in ``block`` [Q, D]."""
    positions = np.flatnonzero(block.statuses[row] != ABSENT)  # [n]
    if not len(positions):
        return None
    positions = positions[ranked(block.raw[row, positions])[: stage.top_k]]
    raw, activated = block.raw[row, positions], block.activated[row, positions]
    return QueryResult(
        stage=stage,
        query=query,
        query_position=query.position,
        kept=len(positions),
        scored=int(np.count_nonzero(~np.isnan(raw))),
        positions=positions.astype(POSITION).tobytes(),
        raw_scores=raw.astype(FLOAT).tobytes(),
        scores=b"" if same_scores(raw, activated) else activated.astype(FLOAT).tobytes(),
        statuses=block.statuses[row, positions].tobytes(),
    )


def stage_statistics(stage: Stage) -> dict[str, Any]:
    """Counts over all pairs, not only the kept ones; ``not_scored`` are those that never came to be scored."""
    by_status = np.zeros(len(ITEM_STATUSES), dtype=np.int64)
    pairs = tokens = 0
    done = Chunk.objects.filter(stage=stage, state=ChunkState.DONE)
    for statuses, report in done.values_list("statuses", "report").iterator(chunk_size=200):
        by_status += np.bincount(np.frombuffer(statuses, np.uint8), minlength=len(ITEM_STATUSES))
        pairs += len(statuses)
        tokens += report.get("prompt_tokens", 0)
    failed = Chunk.objects.filter(stage=stage, state=ChunkState.FAILED).aggregate(
        chunks=Count("pk"), pairs=Sum(F("query_count") * F("document_count"), default=0)
    )
    by_status[FAILED] += failed["pairs"]
    span = done.aggregate(first=Min("started_at"), last=Max("finished_at"))
    seconds = (span["last"] - span["first"]).total_seconds() if pairs else 0.0
    return {
        "pairs": dict(zip(map(str, ITEM_STATUSES), by_status.tolist(), strict=True)),
        "not_scored": stage.pair_count - pairs - failed["pairs"],
        "failed_chunks": failed["chunks"],
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
        return f"{job.failure} {error}".strip()  # said when it was stopped
    return f"No pair could be scored. {error}".strip()
