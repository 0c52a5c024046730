"""Reads about jobs: progress from rows, rankings from their packed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import Count, F, Prefetch, Q, QuerySet, Sum
from django.utils import timezone

from assay.api.principal import Principal
from scoring.models import Chunk, Document, Job, QueryResult, Stage, Transition, Worker
from scoring.ranking import POSITION, ScoreBlock, number, status_name
from scoring.selectors.workers import workers_alive
from scoring.states import ChunkState, ItemStatus, JobState, ModelState


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Counted from chunk rows. ``rate`` in pairs per second and ``eta_seconds`` are None until something is known."""

    pairs_done: int
    pairs_total: int
    chunks: dict[str, int]
    rate: float | None
    eta_seconds: float | None
    workers: list[str]
    reason: str

    @property
    def percent(self) -> float:
        return 100.0 * self.pairs_done / self.pairs_total if self.pairs_total else 0.0


@dataclass(frozen=True, slots=True)
class RankedDocument:
    rank: int
    document: Document
    score: float | None
    raw_score: float | None
    status: ItemStatus


@dataclass(frozen=True, slots=True)
class Ranking:
    """One query's ranking as arrays, best first."""

    positions: Any  # int32 [n]
    block: ScoreBlock  # [n]

    @classmethod
    def of(cls, result: QueryResult) -> Ranking:
        return cls(np.frombuffer(result.positions, POSITION), ScoreBlock.unpack(result, (result.kept,)))


def jobs_of(principal: Principal) -> QuerySet[Job]:
    """The team's jobs with their stages, so that ``last_stage`` costs nothing more."""
    jobs = Job.objects.for_team(principal.team).select_related("document_set", "query_set", "created_by")
    return jobs.prefetch_related(Prefetch("stages", Stage.objects.select_related("model").order_by("index")))


def job_progress(job: Job) -> JobProgress:
    by_state = Chunk.objects.filter(job=job).values("state").order_by("state")
    rows = list(by_state.annotate(chunks=Count("pk"), pairs=Sum(F("query_count") * F("document_count"))))
    chunks = {row["state"]: row["chunks"] for row in rows}
    done = sum(row["pairs"] for row in rows if row["state"] == ChunkState.DONE)
    rate = eta = None
    if job.started_at and done:
        seconds = ((job.finished_at or timezone.now()) - job.started_at).total_seconds()
        rate = done / seconds if seconds > 0 else None
        if rate and not JobState(job.state).is_final:
            eta = (job.pair_count - done) / rate
    holders = Worker.objects.filter(leased_chunks__job=job, leased_chunks__state=ChunkState.LEASED)
    return JobProgress(
        pairs_done=done,
        pairs_total=job.pair_count,
        chunks={state: chunks.get(state, 0) for state in ChunkState.values},
        rate=rate,
        eta_seconds=eta,
        workers=sorted(set(holders.values_list("name", flat=True))),
        reason=_waiting_reason(job) if job.state == JobState.QUEUED else "",
    )


def _waiting_reason(job: Job) -> str:
    """Why a queued job has not begun, in words."""
    for model in (stage.model for stage in job.stages.all() if stage.model):
        if model.state != ModelState.AVAILABLE:
            return f"model '{model.name}' is not served: {model.get_state_display()}"
    if not workers_alive().exists():
        return "no worker is running"
    ahead = Job.objects.filter(state__in=(JobState.QUEUED, JobState.RUNNING)).filter(
        Q(priority__gt=job.priority) | Q(priority=job.priority, queued_at__lt=job.queued_at)
    )
    if count := ahead.count():
        return f"waiting behind {count} other job{'s' if count > 1 else ''}"
    return "a worker is about to take it"


def job_log(job: Job) -> QuerySet[Transition]:
    return Transition.objects.filter(entity="job", entity_id=str(job.pk))


def chunk_problems(job: Job) -> QuerySet[Chunk]:
    """Chunks that came back or failed, with why."""
    return Chunk.objects.filter(job=job).exclude(cause="").defer("raw_scores", "scores", "statuses").order_by("index")


def results_of(stage: Stage) -> QuerySet[QueryResult]:
    return QueryResult.objects.filter(stage=stage).select_related("query")


def ranked_documents(result: QueryResult, *, start: int = 0, limit: int | None = 10) -> list[RankedDocument]:
    """Ranks start + 1 … start + limit with their documents."""
    return ranked_documents_of(result.stage.job, [result], start=start, limit=limit)[0]


def ranked_documents_of(
    job: Job, results: Sequence[QueryResult], *, start: int = 0, limit: int | None = 10
) -> list[list[RankedDocument]]:
    """The same ranks of each of ``results``; the documents of all of them are read at once."""
    window = slice(start, None if limit is None else start + limit)
    rankings = [Ranking.of(result) for result in results]
    positions = {position for ranking in rankings for position in ranking.positions[window].tolist()}
    found = Document.objects.filter(document_set=job.document_set_id, position__in=positions)
    documents = {document.position: document for document in found}
    return [
        [
            RankedDocument(
                rank=rank + 1,
                document=documents[position],
                score=number(ranking.block.activated[rank]),
                raw_score=number(ranking.block.raw[rank]),
                status=status_name(ranking.block.statuses[rank]),
            )
            for rank, position in enumerate(ranking.positions[window].tolist(), start=start)
        ]
        for ranking in rankings
    ]
