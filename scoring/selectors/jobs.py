"""Reads about jobs: progress from rows, rankings from their packed arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
from django.db.models import Count, Prefetch, Q, QuerySet, Sum
from django.utils import timezone

from assay.api.principal import Principal
from assay.api.sentences import shortened
from assay.errors import AssayError
from scoring.models import Chunk, Document, Job, Query, QueryResult, Stage, Worker
from scoring.models.chunk import BLOBS
from scoring.ranking import FAILED, POSITION, ScoreBlock, decimals, status_name
from scoring.selectors.failures import failure_codes
from scoring.selectors.job_waiting import Waiting, job_waiting
from scoring.selectors.packed import packed_part
from scoring.selectors.texts import texts_shown
from scoring.states import STOPPABLE_JOB_STATES, ChunkState, ItemStatus, JobState

RANKING_ARRAYS: Final = {"positions": 4, "raw_scores": 4, "scores": 4, "statuses": 1}  # bytes per rank


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Counted from chunk rows. ``rate`` in pairs per second and ``eta_seconds`` are None until something is known, and
    while nothing is leased on purpose; they are of the present run, not of those before a pause or a retry."""

    pairs_done: int
    pairs_total: int
    chunks: dict[str, int]
    rate: float | None
    eta_seconds: float | None
    workers: list[str]
    waiting: Waiting
    seconds_to_start: float | None = None
    seconds_to_expiry: float | None = None

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


PreviousRanks = dict[tuple[int, int], int]  # (query position, document position) -> rank


def previous_stage(stage: Stage) -> Stage | None:
    """What its ranking is compared with: the stage that gave the candidates, else the one before it in the job."""
    if stage.source_id is not None:
        return stage.source
    return Stage.objects.filter(job=stage.job_id, index=stage.index - 1).first()


def previous_ranks(
    stage: Stage, results: Sequence[QueryResult], ranked: Sequence[Sequence[RankedDocument]]
) -> PreviousRanks:
    """The ranks in the previous stage of the documents shown: ``ranked``, of each of ``results``."""
    before = previous_stage(stage)
    if before is None:
        return {}
    shown = {
        result.query_position: [row.document.position for row in own]
        for result, own in zip(results, ranked, strict=True)
    }
    ranks: PreviousRanks = {}
    rows = QueryResult.objects.filter(stage=before, query_position__in=list(shown))
    for query, packed in rows.values_list("query_position", "positions"):
        positions = np.frombuffer(packed, POSITION)
        for i in np.flatnonzero(np.isin(positions, shown[query])).tolist():
            ranks[query, int(positions[i])] = i + 1
    return ranks


def jobs_of(principal: Principal) -> QuerySet[Job]:
    """The team's jobs with their stages, so that ``last_stage`` costs nothing more."""
    jobs = Job.objects.for_team(principal.team).select_related("document_set", "query_set", "created_by")
    return jobs.prefetch_related(
        Prefetch("stages", Stage.objects.select_related("model", "run_set", "source").order_by("index"))
    )


def query_named(job: Job, external_id: str) -> Query:
    """The query of that id in the uploaded file. Raises AssayError 404 ``no_such_query``."""
    query = Query.objects.filter(query_set=job.query_set_id, external_id=external_id).first()
    if query is None:
        message = f"'{job.query_set.name}' has no query '{shortened(external_id)}'; give an id of the uploaded file."
        raise AssayError("no_such_query", message, status=404, param="query_id")
    return query


def job_stage(job: Job, index: int | None) -> Stage:
    """The stage of that index, the last one for None. Raises AssayError 404 ``no_such_stage``."""
    stages = {stage.index: stage for stage in job.stages.all()}
    number = max(stages) if index is None else index
    if number not in stages:
        there = "only stage 0" if len(stages) == 1 else f"stages 0 to {max(stages)}"
        message = f"Job '{job.name}' has no stage {number}; it has {there}."
        raise AssayError("no_such_stage", message, status=404, param="stage")
    stage = stages[number]
    stage.job = job
    return stage


def job_progress(job: Job) -> JobProgress:
    this_run = Q(finished_at__gte=job.started_at) if job.started_at else Q(pk=None)
    rows = list(  # only done chunks have pairs
        Chunk.objects.filter(job=job)
        .values("state")
        .order_by("state")
        .annotate(chunks=Count("pk"), pairs=Sum("pair_count"), lately=Sum("pair_count", filter=this_run, default=0))
    )
    chunks = {state: 0 for state in ChunkState.values} | {row["state"]: row["chunks"] for row in rows}
    done = sum(row["pairs"] for row in rows)
    lately = sum(row["lately"] for row in rows)
    rate = eta = None
    if job.started_at and lately and job.state != JobState.PAUSED:
        seconds = ((job.finished_at or timezone.now()) - job.started_at).total_seconds()
        rate = lately / seconds if seconds > 0 else None
        if rate and not JobState(job.state).is_final:
            eta = (job.pair_count - done) / rate
    holders = Worker.objects.filter(leased_chunks__job=job, leased_chunks__state=ChunkState.LEASED)
    return JobProgress(
        pairs_done=done,
        pairs_total=job.pair_count,
        chunks=chunks,
        rate=rate,
        eta_seconds=eta,
        workers=sorted(set(holders.values_list("name", flat=True))),
        waiting=job_waiting(job, chunks),
        seconds_to_start=_seconds_to(job.start_at) if job.state == JobState.SCHEDULED else None,
        seconds_to_expiry=_seconds_to(job.expires_at) if job.state in STOPPABLE_JOB_STATES else None,
    )


def _seconds_to(moment: datetime | None) -> float | None:
    return max((moment - timezone.now()).total_seconds(), 0.0) if moment else None


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
    documents = {document.position: document for document in texts_shown(found, job.document_set)}
    return [
        _ranked(ranking, documents, _failures(result, ranking), start)
        for result, ranking in zip(results, rankings, strict=True)
    ]


def _ranked(
    ranking: Ranking, documents: Mapping[int, Document], failures: Mapping[int, str], start: int
) -> list[RankedDocument]:
    block = ranking.block
    columns = ranking.positions.tolist(), decimals(block.activated), decimals(block.raw), block.statuses.tolist()
    return [
        RankedDocument(
            rank=rank,
            document=documents[position],
            score=score,
            raw_score=raw,
            status=status_name(status),
            failure=failures.get(position, ""),
        )
        for rank, (position, score, raw, status) in enumerate(zip(*columns, strict=True), start=start + 1)
    ]


def _failures(result: QueryResult, ranking: Ranking) -> dict[int, str]:
    failed = ranking.positions[ranking.block.statuses == FAILED].tolist()
    return failure_codes(result, failed) if failed else {}


def _ranking_parts(results: Sequence[QueryResult], start: int, limit: int | None) -> dict[int, Ranking]:
    """By row, ranks start + 1 … start + limit: only these bytes are read, however many documents are ranked."""
    columns = [packed_part(column, size, start=start, count=limit) for column, size in RANKING_ARRAYS.items()]
    rows = QueryResult.objects.filter(pk__in=[result.pk for result in results]).values_list("pk", *columns)
    parts = {}
    for pk, positions, raw, scores, statuses in rows:
        block = ScoreBlock.of_bytes(raw, scores, statuses, (len(statuses),))
        parts[pk] = Ranking(np.frombuffer(positions, POSITION), block)
    return parts
