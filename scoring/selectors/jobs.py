"""Reads about jobs: progress from rows, rankings from their packed arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import BinaryField, Count, F, Prefetch, Q, QuerySet, Sum
from django.db.models.functions import Substr
from django.utils import timezone

from assay.api.principal import Principal
from scoring.models import Chunk, Document, Job, QueryResult, Stage, Transition, Worker
from scoring.models.chunk import BLOBS
from scoring.ranking import FAILED, POSITION, ScoreBlock, number, status_name
from scoring.selectors.failures import failure_codes
from scoring.selectors.workers import workers_alive
from scoring.states import ChunkState, ItemStatus, JobState, ModelState

RANKING_ARRAYS: Final = {"positions": 4, "raw_scores": 4, "scores": 4, "statuses": 1}  # bytes per rank


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
    failure: str  # the code of what went wrong, where the status is failed


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
    return Chunk.objects.filter(job=job).exclude(cause="").defer(*BLOBS).order_by("index", "pk")


def results_of(stage: Stage) -> QuerySet[QueryResult]:
    """Without the arrays, which may be large: ``ranked_documents`` reads the part of them that is shown."""
    return QueryResult.objects.filter(stage=stage).select_related("query").defer(*RANKING_ARRAYS)


def ranked_documents(result: QueryResult, *, start: int = 0, limit: int | None = 10) -> list[RankedDocument]:
    """Ranks start + 1 … start + limit with their documents."""
    return ranked_documents_of(result.stage.job, [result], start=start, limit=limit)[0]


def ranked_documents_of(
    job: Job, results: Sequence[QueryResult], *, start: int = 0, limit: int | None = 10
) -> list[list[RankedDocument]]:
    """The same ranks of each of ``results``; the documents of all of them are read at once."""
    parts = _ranking_parts(results, start, limit)
    rankings = [parts[result.pk] for result in results]
    positions = {position for ranking in rankings for position in ranking.positions.tolist()}
    found = Document.objects.filter(document_set=job.document_set_id, position__in=positions)
    documents = {document.position: document for document in found}
    return [
        _ranked(ranking, documents, _failures(result, ranking), start)
        for result, ranking in zip(results, rankings, strict=True)
    ]


def _ranked(
    ranking: Ranking, documents: Mapping[int, Document], failures: Mapping[int, str], start: int
) -> list[RankedDocument]:
    return [
        RankedDocument(
            rank=start + place + 1,
            document=documents[position],
            score=number(ranking.block.activated[place]),
            raw_score=number(ranking.block.raw[place]),
            status=status_name(ranking.block.statuses[place]),
            failure=failures.get(position, ""),
        )
        for place, position in enumerate(ranking.positions.tolist())
    ]


def _failures(result: QueryResult, ranking: Ranking) -> dict[int, str]:
    failed = ranking.positions[ranking.block.statuses == FAILED].tolist()
    return failure_codes(result, failed) if failed else {}


def _ranking_parts(results: Sequence[QueryResult], start: int, limit: int | None) -> dict[int, Ranking]:
    """By row, ranks start + 1 … start + limit: only these bytes are read, however many documents are ranked."""

    def part(column: str, size: int) -> Substr:
        length = None if limit is None else limit * size
        return Substr(column, start * size + 1, length, output_field=BinaryField())

    columns = [part(column, size) for column, size in RANKING_ARRAYS.items()]
    rows = QueryResult.objects.filter(pk__in=[result.pk for result in results]).values_list("pk", *columns)
    parts = {}
    for pk, positions, raw, scores, statuses in rows:
        block = ScoreBlock.of_bytes(raw, scores, statuses, (len(statuses),))
        parts[pk] = Ranking(np.frombuffer(positions, POSITION), block)
    return parts
