"""What people ask of a worker once, done by a real one: a checkpoint looked into, a model measured, a hub away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from scoring.models import Errand
from scoring.services.errands import benchmark_ask, inspection_ask
from scoring.states import ErrandState, PlacementState
from tests.integration.rig import Rig, wait_for
from workers.errands import Errands


@pytest.fixture
def errands(rig: Rig) -> Iterator[Errands]:
    errands = Errands(engine=rig.engine, host=rig.host, worker=rig.worker)
    errands.start()
    yield errands
    assert errands.stop(timeout=30)


def ended(errand: Errand, errands: Errands) -> Errand:
    def over() -> bool:
        errands.wake()
        errand.refresh_from_db()
        return ErrandState(errand.state).is_final

    wait_for(over, seconds=60, what="the errand's end")
    return errand


def test_a_checkpoint_is_looked_into_and_a_model_measured(rig: Rig, errands: Errands) -> None:
    source = str(rig.checkpoint("looked-into"))
    found = ended(inspection_ask(principal=rig.principal, source=source), errands).found
    assert found["kind"] == "bi-encoder" and found["source"] == source and found["dtypes"] == ["F32"]
    assert found["weight_bytes"] > 0 and sum(part["bytes"] for part in found["estimate"]["parts"]) > 0

    model = rig.register("measured")
    rig.wait_for_placement(model, PlacementState.READY)
    benchmark = ended(benchmark_ask(principal=rig.principal, model=model, documents=4, words=5, rounds=2), errands)
    assert benchmark.state == ErrandState.DONE, benchmark.error
    assert benchmark.found["documents_per_second"] > 0 and benchmark.found["backend"] == "cpu"
    assert benchmark.found["settings"]["gpu_maxsim"] is True


def test_what_cannot_be_looked_into_says_why(rig: Rig, errands: Errands, settings: Settings) -> None:
    empty = rig.root / "empty"
    empty.mkdir()
    nothing = ended(inspection_ask(principal=rig.principal, source=str(empty)), errands)
    assert nothing.state == ErrandState.FAILED and "has no config.json" in nothing.error
    outside = ended(inspection_ask(principal=rig.principal, source="/etc"), errands)
    assert outside.state == ErrandState.FAILED and "not below one of MODEL_ROOTS" in outside.error
    settings.MODEL_HUB_URL = "http://127.0.0.1:9"  # nobody listens there
    away = ended(inspection_ask(principal=rig.principal, source="hub:some/model@main"), errands)
    assert away.state == ErrandState.FAILED and "cannot be reached from this worker" in away.error
