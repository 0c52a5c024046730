"""Models follow their rows: load once, toggle in place, reload while serving, fail in words, unload."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scoring.models import Placement, ScoringModel
from scoring.services.bundled import MINILM
from scoring.services.placements import model_load, model_reload, model_unload
from scoring.services.registry import model_change, model_disable
from scoring.states import ModelState, PlacementState
from tests.engine.tiny_pairs import build_cross_encoder
from tests.integration.rig import Rig, wait_for
from workers.engine.types import ItemStatus, ScoringRequest
from workers.faults import ModelUnavailable


def test_a_model_proves_itself_and_stays_loaded(rig: Rig) -> None:
    model = rig.register("late")
    assert model.state == ModelState.AVAILABLE
    assert model.self_test_report is not None
    assert {check["name"] for check in model.self_test_report["checks"]} >= {"finite", "order", "alone"}
    assert (model.facts["architecture"], model.facts["scale"], len(model.revision)) == ("bert", "maxsim", 32)
    placement = rig.wait_for_placement(model, PlacementState.READY)
    assert (placement.generation, placement.maxsim_backend) == (1, "cpu")
    assert rig.host.ensure(model).result(timeout=0) == "late"


def test_a_model_without_files_is_rejected_in_words(rig: Rig) -> None:
    model = rig.register("late", source=str(rig.root / "nowhere"))
    assert model.state == ModelState.REJECTED
    assert model.self_test_report is not None
    assert "there is no folder" in model.self_test_report["checks"][0]["detail"]
    rig.wait_for_placement(model, PlacementState.UNLOADED)


def test_random_weights_do_not_pass_the_full_test(rig: Rig) -> None:
    real = rig.register("minilm", source=MINILM, kind="bi-encoder", self_test_mode="full")
    assert (real.state, rig.host.names()) == (ModelState.AVAILABLE, ["minilm"])
    broken = rig.root / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{not json")
    (broken / "model.safetensors").write_bytes(b"not weights")
    model = rig.register("broken", source=str(broken))
    assert model.state == ModelState.REJECTED
    wait_for(lambda: rig.host.names() == ["minilm"])


def test_a_cross_encoder_is_registered_and_scores(rig: Rig) -> None:
    labels = {"0": "irrelevant", "1": "relevant"}
    folder = build_cross_encoder("bert", rig.root / "pairs", labels=2, id2label=labels)
    given: dict[str, Any] = {"kind": "cross-encoder", "source": str(folder)}
    refused = rig.register("unnamed", **given)
    assert refused.state == ModelState.REJECTED and refused.self_test_report is not None
    assert "irrelevant, relevant" in refused.self_test_report["checks"][0]["detail"]
    model = rig.register("pairs", positive_class="relevant", **given)
    assert (model.state, model.facts["scale"]) == (ModelState.AVAILABLE, "probability")
    name = rig.host.ensure(model).result(timeout=30)
    output = rig.engine.submit(ScoringRequest(name, ("river",), ("the water rose", "", "honey"))).result()
    assert [status.name for status in map(ItemStatus, output.status)] == ["OK", "EMPTY", "OK"]
    assert 0 < output.scores[0] < 1 and output.scores[0] != output.scores[2]


def test_many_waiting_requests_load_a_model_once(rig: Rig) -> None:
    model = rig.register("late")
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    before = rig.engine.progress
    with ThreadPoolExecutor(16) as pool:
        names = list(pool.map(lambda _: rig.host.ensure(model).result(timeout=30), range(64)))
    assert set(names) == {"late"}
    assert rig.placement(model).present
    assert rig.engine.progress - before == 2  # the load and its warm-up


def test_a_toggle_is_in_force_without_a_load(rig: Rig) -> None:
    model = rig.register("late")
    loads = rig.engine.models()["late"].generation
    assert "GPU MaxSim is wanted" in rig.wait_for_placement(model, PlacementState.READY).cause
    model_change(principal=rig.principal, model=model, gpu_maxsim=False)
    placement = rig.wait_for_placement(model, PlacementState.READY, generation=2)
    assert (placement.cause, placement.maxsim_backend) == ("", "cpu")
    assert (rig.engine.models()["late"].gpu_maxsim, rig.engine.models()["late"].generation) == (False, loads)


def test_a_change_that_decides_scores_is_tested_and_loaded_anew(rig: Rig) -> None:
    model = rig.register("late")
    model_change(principal=rig.principal, model=model, max_length=16)
    rig.wait_for_state(model, ModelState.AVAILABLE)
    rig.wait_for_placement(model, PlacementState.READY, generation=model.generation)
    assert rig.engine.models()["late"].max_length == 16


def test_a_reload_goes_on_serving(rig: Rig) -> None:
    model = rig.register("late")
    rig.wait_for_placement(model, PlacementState.READY)
    loads = rig.engine.models()["late"].generation
    stop, answers = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            name = rig.host.ensure(model).result(timeout=0)
            answers.append(rig.engine.submit(ScoringRequest(name, ("river",), ("rain",))).result(timeout=30).scores[0])

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        model_reload(principal=rig.principal, model=model)
        rig.host.wake()
        rig.wait_for_placement(model, PlacementState.READY, reloaded=1)
        stop.set()
    for one in asking:
        one.result()
    assert rig.engine.models()["late"].generation == loads + 1
    np.testing.assert_allclose(answers, answers[0], rtol=1e-6)  # a product over two requests may round otherwise


def test_files_that_changed_since_the_self_test_are_not_served(rig: Rig) -> None:
    model = rig.register("late")
    config = Path(model.source) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "a_note": "changed"}))
    model_reload(principal=rig.principal, model=model)
    placement = rig.wait_for_placement(model, PlacementState.READY, reloaded=1)
    assert placement.cause == "The files of 'late' changed since the self-test; run it again."
    assert rig.engine.models()["late"].revision == model.revision  # those that were tested go on serving
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    model_load(principal=rig.principal, model=model)
    placement = rig.wait_for_placement(model, PlacementState.FAILED)
    assert placement.cause == "The files of 'late' changed since the self-test; run it again."
    assert rig.host.names() == []


def test_a_load_whose_scores_are_not_those_of_the_self_test_is_refused(rig: Rig) -> None:
    model = rig.register("late")
    report = model.self_test_report
    assert report is not None
    report["golden_scores"][0] += 0.5
    ScoringModel.objects.filter(pk=model.pk).update(self_test_report=report)
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    model_load(principal=rig.principal, model=model)
    cause = rig.wait_for_placement(model, PlacementState.FAILED).cause
    assert "now and at registration differ by at most 0.5" in cause and "Run the self-test again." in cause


def test_a_reload_that_fails_leaves_the_old_weights_serving(rig: Rig) -> None:
    model = rig.register("late")
    weights = Path(model.source) / "model.safetensors"
    weights.rename(weights.with_suffix(".gone"))
    model_reload(principal=rig.principal, model=model)
    placement = rig.wait_for_placement(model, PlacementState.READY, reloaded=1)
    assert "safetensors" in placement.cause
    assert rig.host.ensure(model).result(timeout=0) == "late"


def test_a_failed_load_backs_off_until_somebody_asks(rig: Rig) -> None:
    model = rig.register("late")
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    folder = Path(model.source)
    folder.rename(folder.with_name("away"))
    for _ in range(3):
        with pytest.raises(ModelUnavailable, match="there is no folder") as failure:
            rig.host.ensure(model).result(timeout=30)
        assert failure.value.failures == 1
    folder.with_name("away").rename(folder)
    model_load(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.READY)
    assert rig.host.ensure(model).result(timeout=5) == "late"


def test_unload_and_disable_give_the_memory_back(rig: Rig) -> None:
    first, second = rig.register("first"), rig.register("second")
    model_unload(principal=rig.principal, model=first)
    model_disable(principal=rig.principal, model=second)
    for model in (first, second):
        placement = rig.wait_for_placement(model, PlacementState.UNLOADED)
        assert (placement.generation, placement.maxsim_backend) == (0, "")
    assert rig.host.names() == []
    second.refresh_from_db()
    with pytest.raises(ModelUnavailable, match="not served now"):
        rig.host.ensure(second).result(timeout=10)


def test_a_name_may_be_passed_on_to_another_model(rig: Rig) -> None:
    old = rig.register("late")
    model_change(principal=rig.principal, model=old, name="veteran")
    new = rig.register("late", source=str(rig.checkpoint("other")), kind="bi-encoder")
    wait_for(lambda: rig.host.names() == ["late", "veteran"])
    infos = rig.engine.models()
    assert (infos["veteran"].kind, infos["late"].kind) == (old.kind, new.kind)


def test_a_deleted_model_is_unloaded(rig: Rig) -> None:
    model = rig.register("late")
    rig.wait_for_placement(model, PlacementState.READY)
    Placement.objects.all().delete()
    ScoringModel.objects.filter(pk=model.pk).delete()
    wait_for(lambda: rig.host.names() == [])
