"""Rows of placements as workers race for them, demand adds to them and the reconciler settles them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.models import AuditEvent
from scoring.models import Chunk, Placement, ScoringModel, Transition, Worker
from scoring.selectors.demand import model_demands
from scoring.selectors.placements import placement_outlook, placements_ready
from scoring.services import claims
from scoring.services.chunks import chunk_give_back, worker_label
from scoring.services.claims import placement_claim, placement_fail, placement_move
from scoring.services.holds import (
    worker_drain,
    worker_maintain,
    worker_quarantine,
    worker_release,
    worker_resume,
    workers_end_maintenance,
    workers_quarantine,
)
from scoring.services.placements import model_demand, model_load, placement_want, placements_reconcile
from scoring.services.registry import model_change
from scoring.services.workers import worker_heartbeat, worker_started, workers_mark_lost
from scoring.states import (
    ChunkCause,
    ChunkState,
    MemorySource,
    ModelState,
    PlacementDemand,
    PlacementState,
    WorkerHold,
    WorkerState,
)
from tests.integration.conftest import MakeJob, MakeWorker
from tests.integration.test_leases import lease

GIB = 1 << 30
HOUR = timedelta(hours=1)


def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    def one(number: int) -> Any:
        try:
            return call(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def served(name: str, **fields: Any) -> ScoringModel:
    """A row as its passed self-test leaves it."""
    given = {"kind": "bi-encoder", "source": "package:x/y", "state": ModelState.AVAILABLE, "revision": "r1"}
    return ScoringModel.objects.create(name=name, **{**given, **fields})


def ready(model: ScoringModel, worker: Worker, *, claimed_bytes: int = GIB, **fields: Any) -> Placement:
    """``model`` as loaded on ``worker`` an hour ago, by the moves that a worker makes."""
    row = placement_want(model=model, worker=worker, demand=PlacementDemand.PERSON, actor="test")
    assert placement_claim(placement=row, worker=worker, claimed_bytes=claimed_bytes, source=MemorySource.MEASURED)
    for state in (PlacementState.LOADING, PlacementState.WARMING, PlacementState.READY):
        assert placement_move(placement=row, to=state, reason="test")
    Placement.objects.filter(pk=row.pk).update(**{"loaded_at": Now() - HOUR, "generation": model.generation, **fields})
    row.refresh_from_db()
    return row


def moves(row: Placement | Worker) -> list[str]:
    log = Transition.objects.filter(entity=row._meta.model_name, entity_id=str(row.pk)).order_by("id")
    return list(log.values_list("to_state", flat=True))


# Wanted rows and who claims them.


def test_however_many_ask_one_replica_is_wanted(model: ScoringModel, make_worker: MakeWorker) -> None:
    for number in range(3):
        make_worker(f"worker-{number}")
    written = in_threads(20, lambda _: model_demand(model=model))
    assert sum(written) == 1
    row = Placement.objects.get()
    assert (row.worker, row.state, moves(row)) == (None, PlacementState.WANTED, [PlacementState.WANTED])
    assert placement_outlook(model).reason == "Model 'late' waits for a worker to load it."


def test_of_workers_that_race_for_a_row_one_wins(model: ScoringModel, make_worker: MakeWorker) -> None:
    workers = [make_worker(f"worker-{number}") for number in range(8)]
    model_demand(model=model)
    seen = [Placement.objects.get() for _ in workers]  # by each of them while it was still wanted

    def claim(number: int) -> bool:
        return placement_claim(
            placement=seen[number], worker=workers[number], claimed_bytes=GIB, source=MemorySource.ESTIMATED
        )

    won = in_threads(8, claim)
    assert sum(won) == 1
    row = Placement.objects.get()
    assert (row.worker, row.claimed_bytes) == (workers[won.index(True)], GIB)
    assert moves(row) == [PlacementState.WANTED, PlacementState.CLAIMED]
    assert not model_demand(model=model), "what is on its way need not be asked for again"


def test_a_worker_that_has_the_model_claims_no_second_replica(model: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()
    ready(model, worker)
    second = Placement.objects.create(model=model)
    assert not placement_claim(placement=second, worker=worker, claimed_bytes=1, source=MemorySource.ESTIMATED)
    assert Placement.objects.get(pk=second.pk).worker is None


def test_a_failed_load_frees_its_claim_and_waits_longer_each_time(model: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()
    row = placement_want(model=model, worker=worker, demand=PlacementDemand.INTERACTIVE, actor="test")
    pauses = []
    for attempt in range(1, 8):
        assert placement_claim(placement=row, worker=worker, claimed_bytes=GIB, source=MemorySource.ESTIMATED)
        assert placement_fail(placement=row, code="no_folder", cause="there is no folder")
        row = Placement.objects.annotate(pause=F("next_try_at") - F("updated_at")).get(pk=row.pk)
        pauses.append(row.pause.total_seconds())
        assert (row.state, row.attempt, row.claimed_bytes) == (PlacementState.FAILED, attempt, 0)
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert not model_demand(model=model), "the only worker failed at it"
    make_worker("worker-2")
    assert model_demand(model=model), "another worker may do better"


def test_asking_for_a_load_forgets_the_back_off(
    model: ScoringModel, make_worker: MakeWorker, principal: Principal
) -> None:
    row = placement_want(model=model, worker=make_worker(), demand=PlacementDemand.INTERACTIVE, actor="test")
    assert row.worker is not None
    placement_claim(placement=row, worker=row.worker, claimed_bytes=GIB, source=MemorySource.ESTIMATED)
    placement_fail(placement=row, code="no_folder", cause="there is no folder")
    model_load(principal=principal, model=model)
    row.refresh_from_db()
    assert (row.state, row.attempt, row.next_try_at, row.cause) == (PlacementState.WANTED, 0, None, "")


# What the reconciler makes of demand.


def replicas(model: ScoringModel) -> int:
    return Placement.objects.filter(model=model, present=True).count()


def test_a_long_job_spreads_over_all_workers_and_a_short_one_does_not(
    model: ScoringModel, make_worker: MakeWorker, make_job: MakeJob
) -> None:
    for number in range(4):
        make_worker(f"worker-{number}")
    job = make_job(model, chunks=40)
    placements_reconcile()
    assert replicas(model) == 1, "a need must have lasted for more than one"
    type(job).objects.update(queued_at=Now() - timedelta(minutes=1))
    placements_reconcile()
    assert replicas(model) == 4
    Placement.objects.all().delete()
    # Measured: each of the chunks left takes a tenth of a second.
    Chunk.objects.filter(index=0).update(state=ChunkState.DONE, report={"timings": {"forward": 100.0}})
    assert 3 < model_demands()[model.pk].backlog_seconds < 4
    placements_reconcile()
    assert replicas(model) == 1


def test_replicas_stay_between_the_least_and_the_most(
    model: ScoringModel, make_worker: MakeWorker, make_job: MakeJob, principal: Principal
) -> None:
    for number in range(4):
        make_worker(f"worker-{number}")
    placements_reconcile()
    assert replicas(model) == 0
    model_change(principal=principal, model=model, min_replicas=2, max_replicas=3)
    placements_reconcile()
    assert (replicas(model), Placement.objects.all()[0].demand) == (2, PlacementDemand.PIN)
    job = make_job(model, chunks=100)
    type(job).objects.update(queued_at=Now() - timedelta(minutes=1))
    placements_reconcile()
    assert replicas(model) == 3


def test_replicas_idle_for_long_are_let_go_but_the_last(model: ScoringModel, make_worker: MakeWorker) -> None:
    rows = [ready(model, make_worker(f"worker-{number}"), used_at=Now() - number * HOUR) for number in (1, 2, 0)]
    placements_reconcile()
    assert [Placement.objects.get(pk=row.pk).present for row in rows] == [False, False, True]
    Placement.objects.filter(pk=rows[2].pk).update(used_at=Now() - HOUR)
    placements_reconcile()
    assert Placement.objects.get(pk=rows[2].pk).present


def test_a_wanted_row_that_nobody_needs_any_more_goes(
    model: ScoringModel, make_worker: MakeWorker, make_job: MakeJob
) -> None:
    job = make_job(model, chunks=2)
    placements_reconcile()
    assert replicas(model) == 1
    job.delete()
    placements_reconcile()
    assert replicas(model) == 0


def test_what_was_on_a_lost_worker_counts_no_more(model: ScoringModel, make_worker: MakeWorker) -> None:
    lost, other = make_worker("worker-1"), make_worker("worker-2")
    ScoringModel.objects.update(pinned=True)
    row = ready(model, lost, claimed_bytes=3 * GIB)
    assert [found.worker_name for found in placements_ready(model)] == ["worker-1"]
    Worker.objects.filter(pk=lost.pk).update(heartbeat_at=Now() - HOUR)
    assert placements_ready(model) == []
    assert workers_mark_lost() == 1
    placements_reconcile()
    row.refresh_from_db()
    assert (row.state, row.claimed_bytes) == (PlacementState.UNKNOWN, 0)
    wanted = Placement.objects.get(worker=None)
    assert placement_claim(placement=wanted, worker=other, claimed_bytes=GIB, source=MemorySource.MEASURED)
    assert worker_heartbeat(worker=lost, progress=0, memory_bytes=0, in_hand=[], statistics={}) is not None
    assert Worker.objects.get(pk=lost.pk).state == WorkerState.READY


def test_a_restarted_worker_wants_what_it_had_but_what_killed_it(model: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()
    deadly = served("deadly")
    kept, killer = ready(model, worker), placement_want(
        model=deadly, worker=worker, demand=PlacementDemand.INTERACTIVE, actor="test"
    )  # fmt: skip
    assert placement_claim(placement=killer, worker=worker, claimed_bytes=GIB, source=MemorySource.ESTIMATED)
    placement_move(placement=killer, to=PlacementState.LOADING, reason="load")
    make_worker(worker_id=worker.pk)
    for row, state in ((kept, PlacementState.WANTED), (killer, PlacementState.FAILED)):
        row.refresh_from_db()
        assert (row.state, row.claimed_bytes) == (state, 0)
    assert killer.failure_code == claims.LOAD_CRASHED


# People and the reconciler keep workers from work.


def test_a_worker_under_maintenance_is_not_lost_and_keeps_its_pins(
    model: ScoringModel, make_worker: MakeWorker, principal: Principal
) -> None:
    worker, other = make_worker("worker-1"), make_worker("worker-2")
    model_change(principal=principal, model=model, pinned=True)
    row = ready(model, worker)
    worker_maintain(principal=principal, worker=worker, reason="new driver")
    placement_move(placement=row, to=PlacementState.DRAINING, reason="maintenance")
    placement_move(placement=row, to=PlacementState.WANTED, reason="maintenance")
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=Now() - HOUR)
    assert workers_mark_lost() == 0
    placements_reconcile()
    assert [found.worker for found in Placement.objects.all()] == [worker]
    assert placements_ready(model) == []
    assert model_demand(model=model), "but whoever asks for it now is served elsewhere"
    assert Placement.objects.filter(worker=None).count() == 1
    worker_resume(principal=principal, worker=worker, reason="done")
    assert (worker.state, worker.hold, other.state) == (WorkerState.READY, "", WorkerState.READY)
    assert moves(worker)[-2:] == [WorkerState.MAINTENANCE, WorkerState.READY]
    assert list(AuditEvent.objects.filter(target_id=str(worker.pk)).order_by("id").values_list("verb", flat=True)) == [
        "worker.maintenance_begun",
        "worker.resumed",
    ]


def test_a_maintenance_with_an_end_ends_by_itself(make_worker: MakeWorker, principal: Principal) -> None:
    worker = make_worker()
    with pytest.raises(AssayError, match="which has passed"):
        worker_maintain(principal=principal, worker=worker, reason="x", until=timezone.now() - HOUR)
    worker_maintain(principal=principal, worker=worker, reason="x", until=timezone.now() + HOUR)
    assert workers_end_maintenance() == 0
    Worker.objects.update(hold_until=Now() - HOUR)
    assert workers_end_maintenance() == 1
    worker.refresh_from_db()
    assert (worker.state, worker.hold, worker.hold_until) == (WorkerState.READY, "", None)


def test_a_hold_outlives_a_restart_and_a_silence(make_worker: MakeWorker, principal: Principal) -> None:
    worker = make_worker()
    worker_quarantine(worker=worker, actor="reconciler", reason="3 models failed here")
    again = make_worker(worker_id=worker.pk)  # the fixture forces it to ready, as no process does
    Worker.objects.update(state=WorkerState.STARTING)
    assert worker_started(worker=again)
    assert again.state == WorkerState.QUARANTINED
    Worker.objects.update(state=WorkerState.LOST)
    worker_heartbeat(worker=again, progress=0, memory_bytes=0, in_hand=[], statistics={})
    again.refresh_from_db()
    assert (again.state, again.hold) == (WorkerState.QUARANTINED, WorkerHold.QUARANTINE)
    with pytest.raises(AssayError, match="release it"):
        worker_resume(principal=principal, worker=again, reason="x")
    with pytest.raises(AssayError, match="keeps it from work already"):
        worker_drain(principal=principal, worker=again, reason="x")
    assert worker_release(principal=principal, worker=again, reason="new card").state == WorkerState.READY
    with pytest.raises(AssayError, match="give 1 to 200"):
        worker_drain(principal=principal, worker=again, reason=" ")


def test_a_worker_whose_chunks_succeed_elsewhere_is_quarantined(
    model: ScoringModel, make_worker: MakeWorker, make_job: MakeJob
) -> None:
    bad, good = make_worker("worker-1"), make_worker("worker-2")
    make_job(model, chunks=4)
    for _ in range(4):
        chunk = lease(bad)
        chunk_give_back(chunk=chunk, actor=worker_label(bad), cause=ChunkCause.ITEM_ERROR, error="not finite")
        if chunk.index < 3:
            Chunk.objects.filter(pk=chunk.pk).update(state=ChunkState.CANCELLED)  # out of the way of the next lease
    assert workers_quarantine() == 0, "they may fail anywhere"
    Chunk.objects.update(state=ChunkState.DONE, report={"worker": good.name})
    assert workers_quarantine() == 1
    bad.refresh_from_db()
    assert (bad.state, bad.hold_reason) == (WorkerState.QUARANTINED, "4 chunks failed here")
    assert AuditEvent.objects.get(verb="worker.quarantined").target_id == str(bad.pk)


def test_a_worker_where_models_fail_that_are_ready_elsewhere_is_quarantined(make_worker: MakeWorker) -> None:
    bad, good = make_worker("worker-1"), make_worker("worker-2")
    for number in range(3):
        assert workers_quarantine() == 0
        model = served(f"m{number}")
        ready(model, good)
        row = placement_want(model=model, worker=bad, demand=PlacementDemand.BATCH, actor="test")
        placement_claim(placement=row, worker=bad, claimed_bytes=1, source=MemorySource.ESTIMATED)
        placement_fail(placement=row, code="load_failed", cause="CUDA error")
    assert workers_quarantine() == 1
    assert {worker.name: worker.state for worker in Worker.objects.all()} == {
        "worker-1": WorkerState.QUARANTINED,
        "worker-2": WorkerState.READY,
    }


# What an idle worker costs the database.


def test_a_heartbeat_is_one_statement_that_tells_of_changes(model: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()

    def beat() -> Any:
        with CaptureQueriesContext(connection) as queries:
            news = worker_heartbeat(worker=worker, progress=1, memory_bytes=1, in_hand=[], statistics={})
        assert len(queries) == 1
        return news

    first = beat()
    assert (first.state, first.jobs) == (WorkerState.READY, 0) and beat() == first
    model_demand(model=model)
    second = beat()
    assert second.placements != first.placements
    ready(served("other"), worker)
    third = beat()
    assert third.placements != second.placements and beat() == third
    Worker.objects.filter(pk=worker.pk).update(boot_id=uuid.uuid4())
    assert beat() is None
