"""A load that fails leaves nothing: no name, no weights, no cache entry, no memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, ScoringRequest
from workers.engine.candidate import Candidate
from workers.engine.memory import give_memory_back, resident_bytes


def refuse(candidate: Candidate) -> None:
    candidate.warm_up()
    raise EngineError("self_test_failed", "Refused on purpose.")


def test_thirty_failing_loads_then_a_good_one(minilm_folder: Path, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking"
    shutil.copytree(minilm_folder, lacking)
    tensors = load_file(lacking / "model.safetensors")
    tensors.pop("encoder.layer.5.output.dense.weight", None)
    save_file(tensors, lacking / "model.safetensors", {"format": "pt"})
    del tensors
    good = ModelSpec("m", minilm_folder, ModelKind.BI_ENCODER, dtype="float32")
    engine = Engine(EngineConfig(threads=1))
    engine.load(good)
    weights = engine.models()["m"].weight_bytes
    engine.unload("m")
    give_memory_back()
    before = resident_bytes()
    kept: list[EngineError] = []  # whoever keeps an error, as a placement does, keeps no weights by it
    for _ in range(10):
        for spec, proof, code in (
            (ModelSpec("m", lacking, ModelKind.BI_ENCODER), None, "missing_weights"),
            (ModelSpec("m", minilm_folder, ModelKind.CROSS_ENCODER), None, "missing_weights"),
            (good, refuse, "self_test_failed"),
        ):
            with pytest.raises(EngineError) as caught:
                engine.load(spec, prove=proof)
            assert caught.value.code == code
            kept.append(caught.value)
    assert len(kept) == 30 and engine.models() == {}
    assert resident_bytes() - before < weights / 2
    info = engine.load(good)
    assert 0.5 * weights < info.measured_bytes < 3 * weights
    assert resident_bytes() - before < 1.5 * weights
    assert engine.submit(ScoringRequest("m", ("rain",), ("Rain fell.",))).result(30).raw_scores.size == 1
    engine.close()
