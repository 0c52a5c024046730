"""From done chunks to rankings to the end of the job. Each step looks at rows alone and may be taken again at any time:
rankings are written anew, a move happens once, and what a reconciler left half done the next one finishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef
from django.db.models.functions import Now

from scoring import dispatch
from scoring.models import Chunk, Job, Stage, StageMethod
from scoring.ranking import ABSENT, FAILED
from scoring.selectors.candidates import candidate_counts
from scoring.selectors.run_match import run_match
from scoring.services.rankings import stage_rank
from scoring.services.stages import OPEN_STATES, pairs_recount, stage_open
from scoring.services.transitions import RECONCILER, transition
from scoring.services.webhook_deliveries import deliveries_create
from scoring.states import ITEM_STATUSES, ChunkState, ItemStatus, JobEnd, JobState, StageState

ADVANCING = (JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING)
OPENING = (JobState.QUEUED, JobState.PAUSED, *ADVANCING)  # of a paused job too: its chunks wait for the resume


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
    for stage in ready.select_related("job", "model", "run_set").order_by("job", "index"):
        stage_finish(stage)
    stages_open_waiting()
    open_stages = Stage.objects.filter(job=OuterRef("pk"), state__in=OPEN_STATES)
    return sum(job_end(job) for job in Job.objects.filter(state__in=ADVANCING).filter(~Exists(open_stages)))


def stage_finish(stage: Stage) -> bool:
    """Write the stage's rankings and figures. Returns False when another reconciler was faster."""
    job = stage.job
    others = job.stages.filter(state__in=OPEN_STATES).exclude(pk=stage.pk)
    if job.state == JobState.RUNNING and not others.exists():
        transition(job, JobState.FINALIZING, actor=RECONCILER, reason="all chunks ended")
    stage_rank(stage)
    if stage.model is None:
        _count_retrieved(stage)
    figures = stage_statistics(stage)
    return transition(stage, StageState.DONE, actor=RECONCILER, reason="ranked", finished_at=Now(), statistics=figures)


def stages_open_waiting() -> None:
    """Open the stages whose source is ranked; skip those that have nothing to score, or are not wanted any more."""
    waiting = Stage.objects.filter(state=StageState.WAITING, job__state__in=OPENING)
    ended = waiting.filter(source__state__in=(StageState.DONE, StageState.SKIPPED))
    while stages := list(ended.select_related("job", "model", "source")):  # a skip lets those behind it be skipped
        for stage in stages:
            if why := _skipped_because(stage):
                transition(stage, StageState.SKIPPED, actor=RECONCILER, reason=why)
            elif stage_open(stage=stage, actor=RECONCILER):
                dispatch.workers_wake()


def _skipped_because(stage: Stage) -> str:
    if stage.job.state == JobState.CANCELLING:
        return "the job was stopped"
    if stage.source and stage.source.state == StageState.SKIPPED:
        return "its source was skipped"
    return "" if candidate_counts(stage).any() else "its source ranked nothing"


def job_end(job: Job) -> bool:
    """Move a job whose stages have all ended to its end. Returns False when another reconciler was faster."""
    if job.state == JobState.RUNNING and not transition(
        job, JobState.FINALIZING, actor=RECONCILER, reason="all chunks ended"
    ):
        return False
    stages = list(job.stages.select_related("model", "run_set", "source__model", "source__run_set"))
    statistics = _job_statistics(stages)
    stopped = job.state == JobState.CANCELLING
    ended = JobEnd(job.end_reason).job_state if stopped else _end_state(stages, statistics)
    failure = _failure(job, stages) if ended == JobState.FAILED else ""
    told: dict[str, Any] = {"finished_at": Now(), "statistics": statistics, "failure": failure}
    with transaction.atomic():  # the end and the messages that tell of it: both or neither
        moved = transition(job, ended, actor=RECONCILER, reason="ranked", **told)
        if moved:
            deliveries_create(job=job)
    return moved


def _count_retrieved(stage: Stage) -> None:
    """How many pairs a stage that retrieves has is what it found; of chunks that never ended, what they might have."""
    chunks = Chunk.objects.filter(stage=stage).values_list("state", "pair_count", "query_count", "document_count")
    stage.pair_count = sum(
        pairs if state == ChunkState.DONE else queries * documents
        for state, pairs, queries, documents in chunks.iterator()
    )
    stage.save(update_fields=["pair_count"])
    pairs_recount(stage.job)


def stage_statistics(stage: Stage) -> dict[str, Any]:
    """Counts over all pairs, not only the kept ones; ``not_scored`` are those that never came to be scored."""
    by_status = np.zeros(ABSENT + 1, dtype=np.int64)
    tokens = cached = 0
    done = Chunk.objects.filter(stage=stage, state=ChunkState.DONE)
    for statuses, report in done.values_list("statuses", "report").iterator(chunk_size=200):
        by_status += np.bincount(np.frombuffer(statuses, np.uint8), minlength=len(by_status))
        tokens += report.get("prompt_tokens", 0)
        cached += report.get("cached_documents", 0)
    failed = _failed_pairs(stage)
    by_status[FAILED] += sum(failed)
    pairs = by_status[: len(ITEM_STATUSES)]
    span = done.aggregate(first=Min("started_at"), last=Max("finished_at"))
    seconds = (span["last"] - span["first"]).total_seconds() if span["last"] else 0.0
    return {
        "pairs": dict(zip(map(str, ITEM_STATUSES), pairs.tolist(), strict=True)),
        "not_scored": stage.pair_count - int(pairs.sum()),
        "failed_chunks": len(failed),
        "prompt_tokens": tokens,
        "cached_documents": cached,
        "seconds": round(seconds, 3),
        "backends": sorted({b for b in done.values_list("report__backend", flat=True).distinct() if b}),
        "dtypes": sorted({d for d in done.values_list("report__dtype", flat=True).distinct() if d}),
        **({"run": _run_statistics(stage)} if stage.method == StageMethod.RUN else {}),
    }


def _failed_pairs(stage: Stage) -> list[int]:
    """Of each chunk that failed as a whole, how many pairs that were; what it would have retrieved is no pair."""
    failed = Chunk.objects.filter(stage=stage, state=ChunkState.FAILED)
    places = list(failed.values_list("query_start", "query_count", "document_start", "document_count"))
    if stage.model is None or not places:
        return [0] * len(places)
    counts = candidate_counts(stage)
    return [
        int(np.clip(counts[query : query + queries] - document, 0, documents).sum())
        for query, queries, document, documents in places
    ]


def _run_statistics(stage: Stage) -> dict[str, Any]:
    """What of the run found no place in the sets: counted and named, never silently dropped."""
    assert stage.run_set is not None  # the database's own constraint
    job = stage.job
    return run_match(run_set=stage.run_set, query_set=job.query_set, document_set=job.document_set).as_json()


def _job_statistics(stages: Sequence[Stage]) -> dict[str, Any]:
    """The stages' figures together; a stage that was skipped left all its pairs unscored."""
    figures = [stage.statistics for stage in stages if stage.statistics]
    skipped = sum(stage.pair_count for stage in stages if not stage.statistics)
    return {
        "pairs": {str(status): sum(each["pairs"][status] for each in figures) for status in ITEM_STATUSES},
        "not_scored": skipped + sum(each["not_scored"] for each in figures),
        "failed_chunks": sum(each["failed_chunks"] for each in figures),
        "prompt_tokens": sum(each["prompt_tokens"] for each in figures),
        "cached_documents": sum(each.get("cached_documents", 0) for each in figures),
        "seconds": round(sum(each["seconds"] for each in figures), 3),
        "backends": sorted({name for each in figures for name in each["backends"]}),
        "dtypes": sorted({name for each in figures for name in each["dtypes"]}),
    }


def _scored(statistics: dict[str, Any]) -> int:
    return int(statistics["pairs"][ItemStatus.OK] + statistics["pairs"][ItemStatus.TRUNCATED]) if statistics else 0


def _end_state(stages: Sequence[Stage], statistics: dict[str, Any]) -> JobState:
    """A job whose last rankings are all empty failed, whatever came before them."""
    sources = {stage.source_id for stage in stages}
    if not any(_scored(stage.statistics) for stage in stages if stage.pk not in sources):
        return JobState.FAILED
    clean = not statistics["not_scored"] and not statistics["pairs"][ItemStatus.FAILED]
    return JobState.COMPLETED if clean else JobState.COMPLETED_WITH_ERRORS


def _failure(job: Job, stages: Sequence[Stage]) -> str:
    error = Chunk.objects.filter(job=job, state=ChunkState.FAILED).values_list("error", flat=True).first() or ""
    if job.end_reason == JobEnd.TOO_MANY_ERRORS:
        return f"{job.failure} {error}".strip()  # said when it was stopped
    for stage in stages:
        if stage.state == StageState.SKIPPED and stage.source and stage.source.state == StageState.DONE:
            return f"{stage} had nothing to score: {stage.source} ranked no document for any query. {error}".strip()
    return f"No pair could be scored. {error}".strip()
