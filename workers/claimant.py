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
        if why_not := self.obstacle(placement, held):
            self.refuse(placement, why_not)
            return False
        need = self._needs.of(placement.model)
        for row in self._evictions(placement, need, held) or ():
            self._evict(row)
        if need.bytes > self.room(held):  # the device gave back less than was claimed of it
            self.refuse(placement, self._too_large(need, held))
            return False
        return placement_claim(placement=placement, worker=self._worker, claimed_bytes=need.bytes, source=need.source)

    def obstacle(self, placement: Placement, held: Sequence[Placement]) -> str:
        """Why it cannot be had here, even if all went that may; empty if it can. Changes nothing."""
        model = placement.model
        if model.device.startswith("cuda") and not self._memory.device.startswith("cuda"):
            return f"is for {model.device}, and this worker runs on {self._memory.device}"
        need = self._needs.of(model)
        return self._too_large(need, held) if self._evictions(placement, need, held) is None else ""

    def refuse(self, placement: Placement, why: str) -> None:
        """Say so in the row of a replica that is wanted."""
        if placement.state == PlacementState.WANTED:
            placement_refuse(placement=placement, worker=self._worker, why=f"{self._worker.name}: {why}.")

    def room(self, held: Sequence[Placement]) -> int:
        return self._memory.room_bytes(sum(row.claimed_bytes for row in held if row.state in CLAIMING))

    def _evictions(self, placement: Placement, need: MemoryNeed, held: Sequence[Placement]) -> list[Placement] | None:
        """What must go for it: the least recently used, as many as it takes. None: all that may go is too little."""
        missing = need.bytes - self.room(held)
        if missing <= 0:
            return []
        if need.bytes > self._memory.budget_bytes or evicted_lately(model=placement.model, wanted=placement):
            return None
        evictable = placements_evictable(
            worker=self._worker,
            demand=PlacementDemand(placement.demand),
            min_residency=settings.MIN_RESIDENCY_SECONDS,
            busy=self._busy(),
        )
        chosen: list[Placement] = []
        while missing > sum(row.claimed_bytes for row in chosen):
            if len(chosen) == len(evictable):
                return None
            chosen.append(evictable[len(chosen)])
        ours = {row.pk: row for row in held}
        return [ours.get(row.pk, row) for row in chosen]

    def _too_large(self, need: MemoryNeed, held: Sequence[Placement]) -> str:
        holders = sorted(row.model.name for row in held if row.state in CLAIMING)
        kept = f"; held by {', '.join(holders)}" if holders else ""
        return f"needs {size(need.bytes)}, {size(self.room(held))} of {size(self._memory.budget_bytes)} are free{kept}"


def by_urgency(placements: Collection[Placement]) -> list[Placement]:
    return sorted(placements, key=lambda row: (ORDER.index(PlacementDemand(row.demand)), row.wanted_at, row.pk))
