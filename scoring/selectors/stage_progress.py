"""How far each stage of a job under way is, and what workers have in hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db.models import Count, QuerySet, Sum

from scoring.models import Chunk, Job, Stage
from scoring.models.chunk import BLOBS
from scoring.states import ChunkState

IN_HAND_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Pairs done, and chunks by state; a stage that is not open yet has no chunks."""

    stage: Stage
    pairs_done: int
    chunks: dict[str, int]

    @property
    def chunk_count(self) -> int:
        return sum(self.chunks.values())

    @property
    def chunks_done(self) -> int:
        return self.chunks[ChunkState.DONE]

    @property
    def chunks_failed(self) -> int:
        return self.chunks[ChunkState.FAILED]

    @property
    def percent(self) -> float:
        return 100.0 * self.pairs_done / self.stage.pair_count if self.stage.pair_count else 0.0


def stages_progress(job: Job) -> list[StageProgress]:
    """In their order; ``job`` comes with its stages. One query."""
    counted: dict[int, dict[str, tuple[int, int]]] = {}
    rows = Chunk.objects.filter(job=job).order_by("stage", "state").values_list("stage", "state")
    for stage, state, chunks, pairs in rows.annotate(chunks=Count("pk"), pairs=Sum("pair_count")):
        counted.setdefault(stage, {})[state] = chunks, pairs
    progress = []
    for stage in job.stages.all():
        own = counted.get(stage.pk, {})
        chunks = {state: own.get(state, (0, 0))[0] for state in ChunkState.values}
        progress.append(StageProgress(stage, sum(pairs for _, pairs in own.values()), chunks))
    return progress


def chunks_in_hand(job: Job) -> QuerySet[Chunk]:
    """What workers hold now, the longest held first."""
    leased = Chunk.objects.filter(job=job, state=ChunkState.LEASED)
    return leased.select_related("lease_owner", "stage__model").defer(*BLOBS).order_by("started_at")[:IN_HAND_SHOWN]
