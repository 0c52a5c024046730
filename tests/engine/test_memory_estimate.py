"""What a model will take is known before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.tiny import BUILDERS
from workers.engine import Engine, EngineConfig, EngineError, MemoryEstimate, ModelKind, ModelSpec


def part(estimate: MemoryEstimate, name: str) -> int:
    return sum(each.bytes for each in estimate.parts if each.name == name)


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_weights_are_known_to_the_byte(tiny_folders: dict[str, Path], name: str, dtype: str) -> None:
    """Tied ones once; what the kind leaves out not at all."""
    engine = Engine(EngineConfig(threads=1))
    spec = ModelSpec("m", tiny_folders[name], ModelKind.BI_ENCODER, dtype=dtype, max_length=32)
    estimate = engine.estimate(spec)
    info = engine.load(spec)
    # Beside its codes an int8 layer keeps no bias of its own: those are part of another table.
    assert part(estimate, "weights") == pytest.approx(info.weight_bytes, rel=0.05 if dtype == "int8" else 0)
    assert estimate.dtype == info.dtype and estimate.device == info.device
    assert bool(part(estimate, "load")) == (dtype == "int8")
    assert estimate.bytes == sum(each.bytes for each in estimate.parts) and all(each.source for each in estimate.parts)
    engine.close()


def test_loaded_models_share_the_caches(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    specs = [ModelSpec(name, tiny_folders["bert"], ModelKind.LATE_INTERACTION) for name in ("one", "two")]
    alone = part(engine.estimate(specs[0]), "caches")
    engine.load(specs[0])
    assert part(engine.estimate(specs[0]), "caches") == alone == 2 * part(engine.estimate(specs[1]), "caches")
    engine.close()


def test_a_full_micro_batch_stays_within_the_estimate(minilm_folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    spec = ModelSpec("m", minilm_folder, ModelKind.BI_ENCODER, dtype="float32")
    estimate = engine.estimate(spec)
    info = engine.load(spec, prove=lambda candidate: candidate.warm_up())
    assert 0 < info.measured_bytes < estimate.bytes
    engine.close()


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match="no configuration that can be read"):
        engine.estimate(ModelSpec("m", tmp_path, ModelKind.BI_ENCODER))
    engine.close()
