"""Claims replicas for one worker: only what fits beside what it holds, after evicting what may go."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Final

from django.conf import settings

from scoring.models import Placement, Worker
from scoring.services.claims import (
    evicted_lately,
    placement_claim,
    placement_refuse,
    placements_evictable,
)
from scoring.states import CLAIMING, PlacementDemand, PlacementState
from workers.device_memory import DeviceMemory
from workers.memory_need import MemoryNeed, MemoryNeeds, size

# Who is served first: people and their requests before batch work; within that, who waits longest.
ORDER: Final = (PlacementDemand.PERSON, PlacementDemand.INTERACTIVE, PlacementDemand.PIN, PlacementDemand.BATCH)

Evict = Callable[[Placement], None]


class Claimant:
    """``evict`` unloads what a placement holds; ``busy`` are the models with work in flight."""

    def __init__(
        self,
        *,
        worker: Worker,
        memory: DeviceMemory,
        needs: MemoryNeeds,
        busy: Callable[[], Collection[uuid.UUID]],
        evict: Evict,
    ) -> None:
        self._worker = worker
        self._memory = memory
        self._needs = needs
        self._busy = busy
        self._evict = evict

    def claim(self, placement: Placement, held: Sequence[Placement]) -> bool:
        """Reserve the memory and take the row. False: it does not fit, which the row then says, or another worker was
        faster. ``held`` are this worker's placements; what is evicted changes its state there."""
        model = placement.model
        if model.device.startswith("cuda") and not self._memory.device.startswith("cuda"):
            self._refuse(placement, f"is for {model.device}, and this worker runs on {self._memory.device}")
            return False
        need = self._needs.of(model)
        if need.bytes > self.room(held) and not self._make_room(placement, need, held):
            self._refuse(placement, self._too_large(need, held))
            return False
        return placement_claim(placement=placement, worker=self._worker, claimed_bytes=need.bytes, source=need.source)

    def room(self, held: Sequence[Placement]) -> int:
        return self._memory.room_bytes(sum(row.claimed_bytes for row in held if row.state in CLAIMING))

    def _make_room(self, placement: Placement, need: MemoryNeed, held: Sequence[Placement]) -> bool:
        """Evict the least recently used, as many as it takes; nothing if all of them together are too few."""
        if need.bytes > self._memory.budget_bytes or evicted_lately(model=placement.model, wanted=placement):
            return False
        evictable = placements_evictable(
            worker=self._worker,
            demand=PlacementDemand(placement.demand),
            min_residency=settings.MIN_RESIDENCY_SECONDS,
            busy=self._busy(),
        )
        missing = need.bytes - self.room(held)
        chosen: list[Placement] = []
        while missing > sum(row.claimed_bytes for row in chosen):
            if len(chosen) == len(evictable):
                return False
            chosen.append(evictable[len(chosen)])
        ours = {row.pk: row for row in held}
        for row in chosen:
            self._evict(ours.get(row.pk, row))
        return need.bytes <= self.room(held)

    def _too_large(self, need: MemoryNeed, held: Sequence[Placement]) -> str:
        holders = sorted(row.model.name for row in held if row.state in CLAIMING)
        kept = f"; held by {', '.join(holders)}" if holders else ""
        return f"needs {size(need.bytes)}, {size(self.room(held))} of {size(self._memory.budget_bytes)} are free{kept}"

    def _refuse(self, placement: Placement, why: str) -> None:
        if placement.state == PlacementState.WANTED:
            placement_refuse(placement=placement, worker=self._worker, why=f"{self._worker.name}: {why}.")


def by_urgency(placements: Collection[Placement]) -> list[Placement]:
    return sorted(placements, key=lambda row: (ORDER.index(PlacementDemand(row.demand)), row.wanted_at, row.pk))
