"""Two hundred workers cost as many queries as ten, and few connections. How long it takes is in benchmarks/fleet.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from assay.settings import base
from scoring import routing
from scoring.models import Placement, ScoringModel, Transition, Worker
from scoring.payloads import SyncRequest
from scoring.routing import ModelRouter
from scoring.services.queues import queues_sweep
from scoring.services.workers import worker_heartbeat
from scoring.states import PlacementState, WorkerState
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig
from tests.integration.simulated_fleet import SimulatedFleet, connections_now, served_model
from workers import batch, host
from workers.reconcile import Reconciler

SIZES = (10, 200)
CONNECTIONS = 30


def queries_of(work: Callable[[], Any]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        work()
    return len(captured)


def test_a_large_fleet_costs_what_a_small_one_does(
    transactional_db: None, client: Client, make_job: MakeJob, settings: Settings
) -> None:
    settings.HEARTBEAT_SECONDS = 120  # nobody is lost while this machine takes its time
    client.force_login(User.objects.create_superuser("admin"))
    model = served_model("late")
    fleet, reconciler, costs = SimulatedFleet(), Reconciler(), list[dict[str, int]]()
    call = SyncRequest(
        reply_key="", model_id=str(model.pk), model_name="late", queries=["q"], pairing="matrix", deadline=0.0,
        documents=[f"document {n}" for n in range(1000)],
    )  # fmt: skip

    def page(path: str) -> None:
        assert client.get(path).status_code == 200

    def plan() -> None:
        routing.ready.clear()
        parts = ModelRouter(model).plan(call)
        assert sorted(place for part in parts for place in part.documents) == list(range(1000))
        assert len(parts) == min(len(fleet.workers), 1000 // routing.SCATTER_DOCUMENTS)

    for size in SIZES:
        fleet.grow(size)
        fleet.hold(model)
        assert Placement.objects.filter(model=model, state=PlacementState.READY).count() == size
        fleet.beat()
        queues_sweep(now=True)  # it is due once in a minute only; not in one of the rounds that are compared
        for _ in range(2):  # content types and the like are read once
            costs_now = {
                "page": queries_of(lambda: page("/workers/")),
                "list": queries_of(lambda: page("/api/v1/workers")),
                "model page": queries_of(lambda: page(f"/models/{model.name}/")),
                "tick": queries_of(reconciler.tick),
                "plan": queries_of(plan),
                "metrics": queries_of(lambda: page("/metrics")),
            }
        costs.append(costs_now)
    assert costs[0] == costs[1]
    assert costs[1]["plan"] == 1
    assert Worker.objects.filter(state=WorkerState.READY).count() == SIZES[-1]
    leased = fleet_leases(fleet, model, make_job)
    assert leased == 5, "five chunks, two hundred workers"


def fleet_leases(fleet: SimulatedFleet, model: ScoringModel, make_job: MakeJob) -> int:
    """All look for a chunk at once, while somebody counts the connections."""
    make_job(model, chunks=5)
    done, most = threading.Event(), [0]

    def count() -> None:
        while not done.wait(0.01):
            most[0] = max(most[0], connections_now())
        connection.close()

    counting = threading.Thread(target=count)
    counting.start()
    fleet.beat()
    leased = fleet.lease(model)
    done.set()
    counting.join()
    assert 1 < most[0] <= CONNECTIONS
    return leased


def test_a_replica_is_claimed_once(transactional_db: None) -> None:
    model, fleet = served_model("late"), SimulatedFleet()
    fleet.grow(40)
    ScoringModel.objects.filter(pk=model.pk).update(max_replicas=7)
    fleet.hold(ScoringModel.objects.get(pk=model.pk))
    ready = Placement.objects.filter(model=model, state=PlacementState.READY)
    assert ready.count() == 7 == ready.values("worker").distinct().count()
    assert Transition.objects.filter(entity="placement", to_state="claimed").count() == 7


def test_an_idle_worker_asks_less_than_once_a_second(rig: Rig) -> None:
    model = rig.register("late")
    assert rig.host.stop(timeout=30)
    rig.wait_for_placement(model, PlacementState.READY)

    def beat() -> None:
        assert worker_heartbeat(worker=rig.worker, progress=0, memory_bytes=0, in_hand=[], statistics={})

    assert queries_of(beat) == 1
    while rig.host._step():  # a canary that is due
        pass
    parts = {
        "heartbeat": queries_of(beat) / base.HEARTBEAT_SECONDS,
        "host": queries_of(rig.host._step) / host.IDLE_SECONDS,
        "batch": queries_of(rig.batch._turn) * (1 / batch.POLL_SECONDS + (batch.LOOPS - 1) / batch.RELIEF_SECONDS),
    }
    a_second = sum(parts.values())
    assert a_second <= 1, parts
    assert rig.host._pause == host.IDLE_SECONDS
