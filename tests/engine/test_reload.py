"""New weights serve once they have proved themselves; until then, and if they fail, the old ones do."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, ScoringRequest
from workers.engine.candidate import Candidate, SelfTestFailed, must_pass_self_test

REQUEST = ScoringRequest("m", ("river",), ("bees", "rain"))


@pytest.fixture
def folder(tiny_folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folders["bert"], tmp_path / "copy"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(EngineConfig(threads=1))
    yield made
    made.close()


def spec(folder: Path, kind: ModelKind = ModelKind.LATE_INTERACTION) -> ModelSpec:
    return ModelSpec("m", folder, kind, check_order=False)


def change_weights(folder: Path, *, broken: bool = False) -> None:
    weights = load_file(folder / "model.safetensors")
    changed = {name: weight + 0.05 * torch.randn_like(weight) for name, weight in weights.items()}
    if broken:
        changed["encoder.layer.1.output.dense.bias"][0] = torch.nan
    save_file(changed, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("kind", [ModelKind.LATE_INTERACTION, ModelKind.BI_ENCODER])
def test_a_reload_that_fails_its_self_test_changes_nothing(engine: Engine, folder: Path, kind: ModelKind) -> None:
    before = engine.load(spec(folder, kind), prove=must_pass_self_test)
    scores = engine.submit(REQUEST).result(60).scores
    change_weights(folder, broken=True)
    with pytest.raises(SelfTestFailed, match="0 of 6 scores are finite") as caught:
        engine.load(spec(folder, kind), prove=must_pass_self_test)
    assert caught.value.code == "self_test_failed"
    assert {check.name for check in caught.value.report.checks if not check.passed} >= {"finite"}
    assert engine.models() == {"m": before} and len(engine._models.tasks()) == 1
    output = engine.submit(REQUEST).result(60)
    assert (output.cached_documents, output.revision) == (2, before.revision)
    np.testing.assert_array_equal(output.scores, scores)
    change_weights(folder)
    with pytest.raises(SelfTestFailed):  # a NaN stays one
        engine.load(spec(folder, kind), prove=must_pass_self_test)


def test_the_old_weights_serve_while_the_new_ones_are_tested(engine: Engine, folder: Path) -> None:
    engine.load(spec(folder))
    old = engine.submit(REQUEST).result(60)
    change_weights(folder)
    seen: list[Candidate] = []

    def prove(candidate: Candidate) -> None:
        own = candidate.score(REQUEST)
        serving = engine.submit(REQUEST).result(60)
        assert own.revision == candidate.info.revision != old.revision == serving.revision
        assert own.cached_documents == 0 and serving.cached_documents == 2
        assert not np.allclose(own.scores, old.scores)
        np.testing.assert_array_equal(serving.scores, old.scores)
        assert candidate.self_test().passed
        seen.append(candidate)

    info = engine.load(spec(folder), prove=prove)
    assert replace(seen[0].info, measured_bytes=info.measured_bytes) == info and info.generation == 2
    after = engine.submit(REQUEST).result(60)
    assert (after.revision, after.cached_documents) == (info.revision, 0)


def test_a_first_load_is_served_only_once_proved(engine: Engine, folder: Path) -> None:
    def prove(candidate: Candidate) -> None:
        assert engine.models() == {}
        assert np.isfinite(candidate.score(REQUEST).scores).all()
        with pytest.raises(EngineError, match="not loaded"):
            engine.submit(REQUEST).result(60)
        raise KeyError("whatever the proof raises")

    with pytest.raises(KeyError, match="whatever"):
        engine.load(spec(folder), prove=prove)
    assert engine.models() == {} and engine._models.tasks() == []
    assert engine.load(spec(folder)).generation == 1


def test_unloading_while_a_reload_is_proved_does_not_end_it(engine: Engine, folder: Path) -> None:
    engine.load(spec(folder))
    proving, gone = threading.Event(), threading.Event()

    def prove(candidate: Candidate) -> None:
        proving.set()
        assert gone.wait(30)
        must_pass_self_test(candidate)

    loading = threading.Thread(target=engine.load, args=(spec(folder),), kwargs={"prove": prove})
    loading.start()
    assert proving.wait(30)
    engine.unload("m")
    gone.set()
    loading.join(60)
    assert np.isfinite(engine.submit(REQUEST).result(60).scores).all()


def test_a_self_test_leaves_caches_and_other_requests_alone(engine: Engine, folder: Path) -> None:
    engine.load(spec(folder))
    engine.submit(REQUEST).result(60)
    before = engine.statistics()
    assert engine.self_test("m").passed
    after = engine.statistics()
    assert (after.document_cache, after.query_cache) == (before.document_cache, before.query_cache)
    assert engine.submit(REQUEST).result(60).cached_documents == 2


@pytest.mark.parametrize("kind", [ModelKind.LATE_INTERACTION, ModelKind.BI_ENCODER])
def test_golden_scores_are_compared_at_later_loads(engine: Engine, folder: Path, kind: ModelKind) -> None:
    explicit = replace(spec(folder, kind), dtype="float32")
    engine.load(explicit)
    golden = engine.self_test("m").golden_scores
    with_golden = replace(explicit, golden_scores=golden)
    engine.load(with_golden, prove=must_pass_self_test)
    assert [check.name for check in engine.self_test("m").checks][-1] == "golden"
    off = replace(explicit, golden_scores=(golden[0] + 0.5, *golden[1:]))
    with pytest.raises(SelfTestFailed, match=r"now and at registration differ by at most 0\.5; allowed is"):
        engine.load(off, prove=must_pass_self_test)
    short = replace(explicit, golden_scores=golden[:2])
    with pytest.raises(SelfTestFailed, match="2 golden scores for 6 examples"):
        engine.load(short, prove=must_pass_self_test)
    # ``auto`` means another dtype on another machine: what the coarsest one may differ by is let through.
    near = replace(spec(folder, kind), golden_scores=tuple(score + 0.02 for score in golden))
    engine.load(near, prove=must_pass_self_test)
    with pytest.raises(SelfTestFailed):
        engine.load(replace(near, dtype="float32"), prove=must_pass_self_test)
