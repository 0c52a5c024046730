"""Workers without processes: their rows, heartbeats and claims, through the services that real ones use."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from django.db import connection, connections
from django.db.models.functions import Now

from scoring.models import Placement, ScoringModel, Worker
from scoring.services.chunks import chunk_lease
from scoring.services.claims import placement_claim, placement_move
from scoring.services.placements import model_demand
from scoring.services.workers import worker_equip, worker_heartbeat, worker_register, worker_started
from scoring.states import MemorySource, ModelState, PlacementState

THREADS: Final = 20  # as many connections, whatever the number of workers
GIB: Final = 1 << 30
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class SimulatedFleet:
    workers: list[Worker] = field(default_factory=list)

    def grow(self, count: int) -> None:
        """Start workers until there are ``count``."""
        names = [f"simulated-{number:03}" for number in range(len(self.workers), count)]
        self.workers += in_threads(_started, names)

    def hold(self, model: ScoringModel) -> None:
        """Every worker claims and loads a replica of ``model``, all at once."""
        missing = len(self.workers) * 30.0  # seconds of work that are worth as many replicas
        model_demand(model=model, seconds=missing)
        in_threads(lambda worker: _claimed(worker, model), self.workers)

    def beat(self) -> None:
        """What every worker does every HEARTBEAT_SECONDS."""
        in_threads(_beat, self.workers)

    def lease(self, model: ScoringModel) -> int:
        """Every worker looks for a chunk. Returns how many got one."""
        return sum(
            chunk is not None
            for chunk in in_threads(lambda one: chunk_lease(worker=one, models=[model.pk]), self.workers)
        )


def served_model(name: str) -> ScoringModel:
    facts = {"max_length": 256, "scale": "maxsim", "load_seconds": 1.0, "dtype": "float32", "device": "cpu"}
    return ScoringModel.objects.create(
        name=name, kind="late-interaction", source="package:x/y", state=ModelState.AVAILABLE, revision="r1", facts=facts
    )


def connections_now() -> int:
    """To the database that is ours, the one that asks among them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        (count,) = cursor.fetchone() or (0,)
    return int(count)


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """In the order of ``items``; each thread takes every so many of them over one connection."""

    def run(first: int) -> list[Result]:
        try:
            return [work(item) for item in items[first::THREADS]]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(THREADS) as pool:
        lanes = list(pool.map(run, range(THREADS)))
    return [lanes[place % THREADS][place // THREADS] for place in range(len(items))]


def _started(name: str) -> Worker:
    worker = worker_register(worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name=name, host="here", pid=1, device="cpu")
    worker_equip(worker=worker, device_class="cpu", memory_budget_bytes=8 * GIB)
    worker_started(worker=worker)
    return worker


def _claimed(worker: Worker, model: ScoringModel) -> bool:
    """As a worker's host does: take one of the replicas that nobody has, the next one if somebody was faster."""
    if Placement.objects.filter(model=model, worker=worker).exists():
        return False
    while unclaimed := list(Placement.objects.filter(model=model, worker=None).order_by("?")[:1]):
        (row,) = unclaimed
        if placement_claim(placement=row, worker=worker, claimed_bytes=GIB, source=MemorySource.ESTIMATED):
            row.worker = worker
            for state in (PlacementState.LOADING, PlacementState.WARMING):
                placement_move(placement=row, to=state, reason="simulated")
            loaded = {"generation": model.generation, "facts": model.facts, "loaded_at": Now()}
            return placement_move(placement=row, to=PlacementState.READY, reason="simulated", **loaded)
    return False


def _beat(worker: Worker) -> None:
    assert worker_heartbeat(worker=worker, progress=1, memory_bytes=GIB, in_hand=[], statistics={})
