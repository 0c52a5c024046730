"""What fits on a worker, what is evicted for it, and what a canary finds: a real host on a real engine."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from scoring.models import Placement, ScoringModel, Transition, Worker
from scoring.selectors.placements import placement_outlook
from scoring.services import claims
from scoring.services.holds import worker_drain, worker_release, worker_resume
from scoring.services.placements import model_demand, model_unload
from scoring.services.registry import model_change
from scoring.states import MemorySource, ModelState, PlacementDemand, PlacementState, WorkerState
from tests.integration.rig import Rig, wait_for
from workers.device_memory import DeviceMemory
from workers.engine.types import ScoringRequest
from workers.faults import ModelUnavailable

GIB = 1 << 30


@pytest.fixture
def two_gib(settings: Settings) -> None:
    """Room for two of the models below, each of which is said to need one."""
    settings.WORKER_MEMORY_BYTES = 2 * GIB
    settings.WORKER_MEMORY_RESERVE_BYTES = 0
    settings.MIN_RESIDENCY_SECONDS = 0


def use(rig: Rig, model: ScoringModel) -> None:
    name = rig.host.ensure(model).result(timeout=60)
    rig.host.submit(model.pk, ScoringRequest(name, ("river",), ("rain",)), interactive=True).result(timeout=60)
    rig.host.wake()
    wait_for(lambda: rig.placement(model).interactive_at is not None and rig.placement(model).in_flight == 0)


def held(rig: Rig) -> set[str]:
    return set(rig.host.names())


def log_of(entity: str, row: Placement | Worker) -> list[str]:
    return list(
        Transition.objects.filter(entity=entity, entity_id=str(row.pk))
        .order_by("id")
        .values_list("to_state", flat=True)
    )


def test_a_claim_is_estimated_then_measured_unless_an_administrator_says(rig: Rig) -> None:
    model = rig.register("late")
    row = rig.wait_for_placement(model, PlacementState.READY)
    model.refresh_from_db()
    assert row.measured_bytes is not None and row.estimated_bytes is not None
    assert (row.claimed_bytes, row.claim_source) == (row.measured_bytes, MemorySource.MEASURED)
    assert (model.measured_bytes, model.estimated_bytes) == ({"cpu": row.measured_bytes}, row.estimated_bytes)
    log = Transition.objects.get(entity="placement", entity_id=str(row.pk), to_state=PlacementState.CLAIMED)
    assert log.detail == {"bytes": row.estimated_bytes, "source": MemorySource.ESTIMATED}
    model_unload(principal=rig.principal, model=model)
    gone = rig.wait_for_placement(model, PlacementState.UNLOADED)
    assert gone.claimed_bytes == 0
    model_change(principal=rig.principal, model=model, memory_bytes=GIB)
    assert rig.host.ensure(model).result(timeout=60) == "late"
    row = rig.wait_for_placement(model, PlacementState.READY)
    assert (row.claimed_bytes, row.claim_source) == (GIB, MemorySource.OVERRIDE)
    model_change(principal=rig.principal, model=model, max_length=16)
    assert (model.measured_bytes, model.estimated_bytes) == ({}, None), "what was measured was of another model"


@pytest.mark.usefixtures("two_gib")
def test_the_least_recently_used_is_evicted_and_two_models_do_not_push_each_other_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (rig.register(name, memory_bytes=GIB) for name in ("first", "second"))
    use(rig, first)
    third = rig.register("third", memory_bytes=GIB)
    assert third.state == ModelState.AVAILABLE and held(rig) == {"first", "third"}
    row = rig.placement(second)
    assert (row.state, row.present, row.claimed_bytes) == (PlacementState.UNLOADED, False, 0)
    assert log_of("placement", row)[-2:] == [PlacementState.DRAINING, PlacementState.UNLOADED]
    with pytest.raises(ModelUnavailable, match=r"needs 1.0 GiB, 0 MiB of 2.0 GiB are free; held by first, third\."):
        rig.host.ensure(second).result(timeout=60)  # evicted a moment ago
    assert held(rig) == {"first", "third"}
    use(rig, first)
    monkeypatch.setattr(claims, "EVICTED_LATELY", timedelta())
    assert rig.host.ensure(second).result(timeout=60) == "second"
    assert held(rig) == {"first", "second"}


@pytest.mark.usefixtures("two_gib")
def test_what_is_pinned_in_use_or_new_stays(rig: Rig, settings: Settings) -> None:
    pinned, used = (rig.register(name, memory_bytes=GIB) for name in ("pinned", "used"))
    model_change(principal=rig.principal, model=pinned, pinned=True)
    other = rig.register("other", memory_bytes=GIB, wait=False)
    flying: Future[object] = Future()
    rig.host.usage.track(used.pk, flying, interactive=True)
    rig.host.wake()
    wait_for(lambda: rig.placement(used).in_flight == 1)
    wanted = Placement.objects.filter(model=other, refusals__has_key="worker-1")
    wait_for(wanted.exists)
    assert "held by pinned, used" in wanted.get().refusals["worker-1"]
    assert other.state == ModelState.REGISTERED and held(rig) == {"pinned", "used"}
    flying.set_result(None)
    rig.wait_for_state(other, ModelState.AVAILABLE)
    assert held(rig) == {"pinned", "other"}
    settings.MIN_RESIDENCY_SECONDS = 3600
    model_demand(model=used)
    unclaimed = Placement.objects.filter(model=used, worker=None, refusals__has_key="worker-1")
    wait_for(unclaimed.exists)
    assert "held by other, pinned" in placement_outlook(used).reason
    model_change(principal=rig.principal, model=other, min_residency=0)
    Placement.objects.update(evicted_at=None)
    assert rig.host.ensure(used).result(timeout=60) == "used"


@pytest.mark.usefixtures("two_gib")
def test_batch_work_evicts_nothing_that_people_used_lately(rig: Rig) -> None:
    models = [rig.register(name, memory_bytes=GIB) for name in ("first", "second")]
    for model in models:
        use(rig, model)
    third = rig.register("third", memory_bytes=GIB)
    assert held(rig) == {"second", "third"}
    model_unload(principal=rig.principal, model=third)
    assert rig.host.ensure(models[0]).result(timeout=60) == "first"
    use(rig, models[0])
    model_demand(model=third, demand=PlacementDemand.BATCH)
    wait_for(Placement.objects.filter(model=third, worker=None, refusals__has_key="worker-1").exists)
    assert held(rig) == {"first", "second"}
    Placement.objects.filter(model=models[1]).update(interactive_at=Now() - timedelta(hours=1))
    rig.wait_for_placement(third, PlacementState.READY)
    assert held(rig) == {"first", "third"}


@pytest.mark.usefixtures("two_gib")
def test_a_model_larger_than_the_worker_is_refused_in_words(rig: Rig) -> None:
    small, large = rig.register("small", memory_bytes=GIB), rig.register("large", memory_bytes=3 * GIB, wait=False)
    wait_for(Placement.objects.filter(model=large, refusals__has_key="worker-1").exists)
    row = Placement.objects.get(model=large)
    assert row.refusals == {"worker-1": "worker-1: needs 3.0 GiB, 1.0 GiB of 2.0 GiB are free; held by small."}
    assert held(rig) == {small.name}, "nothing is evicted in vain"
    looked = Transition.objects.filter(entity_id__in=(str(large.pk), str(row.pk))).order_by("id")
    assert list(looked.values_list("to_state", flat=True)) == ["registered", "wanted"], "to wait is no move"
    model_change(principal=rig.principal, model=large, memory_bytes=GIB)
    rig.wait_for_state(large, ModelState.AVAILABLE)


def test_a_drained_worker_gives_up_its_models_and_refuses(rig: Rig) -> None:
    model = rig.register("late")
    worker_drain(principal=rig.principal, worker=Worker.objects.get(), reason="to be moved")
    row = rig.wait_for_placement(model, PlacementState.UNLOADED)
    assert (row.present, held(rig)) == (False, set())
    with pytest.raises(ModelUnavailable, match="takes no work now"):
        rig.host.ensure(model).result(timeout=60)
    worker_resume(principal=rig.principal, worker=Worker.objects.get(), reason="moved")
    wait_for(lambda: rig.worker.state == WorkerState.READY)
    assert rig.host.ensure(model).result(timeout=60) == "late"


def test_a_model_that_drifts_is_read_again_and_then_its_worker_quarantined(rig: Rig, settings: Settings) -> None:
    model = rig.register("late")
    row = rig.wait_for_placement(model, PlacementState.READY)
    settings.CANARY_SECONDS = 0
    rig.host.wake()
    wait_for(lambda: rig.placement(model).canary_at is not None)
    assert (rig.placement(model).drifts, rig.placement(model).state) == (0, PlacementState.READY)
    report = model.self_test_report
    assert report is not None
    ScoringModel.objects.update(self_test_report={**report, "golden_scores": [9.0] * len(report["golden_scores"])})
    wait_for(lambda: Worker.objects.get().state == WorkerState.QUARANTINED)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    assert log_of("placement", row)[-6:] == [
        PlacementState.DEGRADED,
        PlacementState.UPDATING,
        PlacementState.READY,
        PlacementState.DEGRADED,
        PlacementState.DRAINING,
        PlacementState.UNLOADED,
    ]
    assert Worker.objects.get().hold_reason == "canary of late"
    settings.CANARY_SECONDS = 3600
    ScoringModel.objects.update(self_test_report=report)
    worker_release(principal=rig.principal, worker=Worker.objects.get(), reason="it was the test")
    wait_for(lambda: rig.worker.state == WorkerState.READY)
    assert rig.host.ensure(model).result(timeout=60) == "late"


def test_room_is_what_the_budget_and_the_device_leave() -> None:
    plenty = DeviceMemory("cpu", "cpu", budget_bytes=3 * GIB, reserve_bytes=0)
    assert plenty.room_bytes(GIB) == 2 * GIB and plenty.room_bytes(4 * GIB) == 0
    full = DeviceMemory("cpu", "cpu", budget_bytes=1 << 60, reserve_bytes=1 << 59)
    assert full.room_bytes(0) == 0, "other processes and the reserve count too"


def test_an_idle_host_looks_at_the_database_seldom(rig: Rig) -> None:
    rig.wait_for_placement(rig.register("late"), PlacementState.READY)
    assert rig.host.stop(timeout=30)
    with CaptureQueriesContext(connection) as queries:
        assert not rig.host._step()
    assert len(queries) <= 2
    assert rig.host._pause == 10.0
