"""What may be loaded, what is refused and in which words, and what a load leaves behind."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, ScoringRequest
from workers.engine.families.sentence_folder import read_pooling
from workers.engine.families.sentence_modules import Module
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import content_revision, load_checkpoint


def refused(spec: ModelSpec, config: EngineConfig | None = None) -> EngineError:
    with pytest.raises(EngineError) as caught:
        load_checkpoint(spec, config or EngineConfig())
    return caught.value


@pytest.fixture
def copy(tiny_folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folders["bert"], tmp_path / "copy"))


def test_missing_weights_are_named_not_made_up(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    error = refused(ModelSpec("m", copy, ModelKind.BI_ENCODER))
    assert error.code == "missing_weights" and "encoder.layer.1.output.dense.weight" in str(error)


def test_weights_of_another_shape_are_refused(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["encoder.layer.1.output.dense.weight"] = torch.zeros(32, 63)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    error = refused(ModelSpec("m", copy, ModelKind.BI_ENCODER))
    assert error.code == "missing_weights" and "stored [32, 63], wanted [32, 64]" in str(error)


def test_the_pooler_of_bert_may_be_absent(copy: Path) -> None:
    weights = {name: w for name, w in load_file(copy / "model.safetensors").items() if not name.startswith("pooler")}
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert load_checkpoint(ModelSpec("m", copy, ModelKind.BI_ENCODER), EngineConfig()).runner.execution == "packed"


def test_a_kind_that_the_architecture_cannot_be(tiny_folders: dict[str, Path]) -> None:
    error = refused(ModelSpec("m", tiny_folders["mpnet"], ModelKind.GENERATIVE))
    assert error.code == "unsupported_architecture" and "mpnet" in str(error)


def test_folders_that_are_not_models(tmp_path: Path, copy: Path) -> None:
    assert refused(ModelSpec("m", tmp_path / "nowhere", ModelKind.BI_ENCODER)).code == "checkpoint_not_found"
    assert "config.json" in str(refused(ModelSpec("m", tmp_path, ModelKind.BI_ENCODER)))
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    assert "safetensors" in str(refused(ModelSpec("m", copy, ModelKind.BI_ENCODER)))
    error = refused(
        ModelSpec("m", copy, ModelKind.GENERATIVE, gguf_file="none.gguf"), EngineConfig(conversion_folder=tmp_path)
    )
    assert error.code == "checkpoint_not_found"


def test_code_in_a_checkpoint_is_never_run(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "evil.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    assert refused(ModelSpec("m", copy, ModelKind.BI_ENCODER)).code == "checkpoint_unreadable"
    assert not (copy / "ran").exists()


def test_devices_and_dtypes_that_do_not_exist(copy: Path) -> None:
    assert refused(ModelSpec("m", copy, ModelKind.BI_ENCODER, device="quantum")).code == "unknown_device"
    assert refused(ModelSpec("m", copy, ModelKind.BI_ENCODER, dtype="int3")).code == "unknown_dtype"
    if not torch.cuda.is_available():
        assert refused(ModelSpec("m", copy, ModelKind.BI_ENCODER, device="cuda:0")).code == "no_cuda"


@pytest.mark.parametrize(
    ("architecture", "wanted", "limit"),
    [("bert", None, 64), ("bert", 20, 20), ("bert", 1000, 64), ("roberta", None, 64), ("xlm-roberta", 1000, 64)],
)
def test_l6_limits_never_exceed_the_positions(
    tiny_folders: dict[str, Path], architecture: str, wanted: int | None, limit: int
) -> None:
    """RoBERTa's positions begin behind the padding index: 66 rows are 64 tokens. Texts of exactly that length run."""
    engine = Engine(EngineConfig(threads=1))
    info = engine.load(ModelSpec("m", tiny_folders[architecture], ModelKind.BI_ENCODER, max_length=wanted))
    assert info.max_length == limit
    texts = tuple("a " * (limit + extra) for extra in range(-4, 3))
    output = engine.submit(ScoringRequest("m", ("a",), texts)).result(60)
    assert np.isfinite(output.scores).all()
    engine.close()


def test_the_folders_own_limit_is_the_default(copy: Path) -> None:
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    assert load_checkpoint(ModelSpec("m", copy, ModelKind.BI_ENCODER), EngineConfig()).max_length == 32
    wider = ModelSpec("m", copy, ModelKind.BI_ENCODER, max_length=48)
    assert load_checkpoint(wider, EngineConfig()).max_length == 48


def test_pooling_comes_from_the_folder(tmp_path: Path) -> None:
    module = Module("Pooling", tmp_path)
    assert read_pooling(module) == ("mean",)
    for content, expected in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, ("mean",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
    ):
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert read_pooling(module) == expected
    for unknown in ({"pooling_mode_attention": True}, {"pooling_mode": "attention"}):
        (tmp_path / "config.json").write_text(json.dumps(unknown))
        with pytest.raises(EngineError, match="attention; supported are cls"):
            read_pooling(module)


def test_cls_pooling_is_the_first_token(copy: Path, tiny_folders: dict[str, Path]) -> None:
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("cls", copy, ModelKind.BI_ENCODER))
    engine.load(ModelSpec("tokens", copy, ModelKind.LATE_INTERACTION))
    texts = ("the river rose", "bees")
    cosine = engine.submit(ScoringRequest("cls", texts[:1], texts[1:])).result(60).scores[0]
    checkpoint = load_checkpoint(ModelSpec("m", copy, ModelKind.LATE_INTERACTION), EngineConfig())
    vectors = []
    for tokens in checkpoint.tokenizer.encode_surrounded(texts, 60):
        own = checkpoint.runner.forward(checkpoint.runner.pack([Piece(tokens.ids)]))
        vectors.append(torch.nn.functional.normalize(own[0], dim=0))
    assert cosine == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    engine.close()


def test_the_revision_follows_the_content(copy: Path, tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    revision = content_revision(copy)
    assert revision == content_revision(tiny_folders["bert"])
    (copy / "notes.py").write_text("not part of the model")
    assert content_revision(copy) == revision
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text("{}")
    assert content_revision(copy) != revision


def test_a_reload_serves_the_old_weights_until_the_new_ones_are_in(copy: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    spec = ModelSpec("m", copy, ModelKind.BI_ENCODER)
    first = engine.load(spec)
    before = engine.submit(ScoringRequest("m", ("river",), ("bees",))).result(60)
    weights = load_file(copy / "model.safetensors")
    save_file(
        {n: w + 0.05 * torch.randn_like(w) for n, w in weights.items()}, copy / "model.safetensors", {"format": "pt"}
    )
    assert engine.submit(ScoringRequest("m", ("river",), ("bees",))).result(60).scores[0] == before.scores[0]
    second = engine.load(spec)
    after = engine.submit(ScoringRequest("m", ("river",), ("bees",))).result(60)
    assert (first.generation, second.generation) == (1, 2) and first.revision != second.revision
    assert after.scores[0] != before.scores[0] and after.revision == second.revision and after.cached_documents == 0
    (copy / "model.safetensors").unlink()
    with pytest.raises(EngineError):
        engine.load(spec)
    assert engine.models()["m"] == second  # a load that fails changes nothing
    engine.close()


def test_unloading_answers_what_waits_and_forgets_the_model(copy: Path) -> None:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=32))
    engine.load(ModelSpec("m", copy, ModelKind.LATE_INTERACTION))
    futures = [
        engine.submit(ScoringRequest("m", (f"query {i}",), tuple(f"{i} {j}" for j in range(200)))) for i in range(5)
    ]
    engine.unload("m")
    outcomes = [future.exception(60) for future in futures]
    assert all(
        error is None or (isinstance(error, EngineError) and error.code == "model_unloaded") for error in outcomes
    )
    assert engine.statistics().reserved_bytes == 0 and engine.statistics().document_cache.entries == 0
    with pytest.raises(EngineError, match="Loaded: none"):
        engine.unload("m")
    engine.close()


def test_loading_and_unloading_thirty_times_keeps_memory_flat(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    sizes = []
    for _ in range(30):
        engine.load(ModelSpec("m", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
        engine.submit(ScoringRequest("m", ("river",), ("bees", "rain"))).result(60)
        engine.unload("m")
        sizes.append(psutil.Process().memory_info().rss)
    gc.collect()
    assert engine._models.tasks() == []
    assert sizes[-1] - sizes[4] < 8 * 2**20
    engine.close()


def test_random_weights_fail_the_order_check_and_pass_without_it(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    for kind, architecture in ((ModelKind.BI_ENCODER, "bert"), (ModelKind.GENERATIVE, "llama")):
        engine.load(ModelSpec("m", tiny_folders[architecture], kind, check_order=False))
        report = engine.self_test("m")
        assert report.passed, report.checks
        assert [check.name for check in report.checks] == ["finite", "order", "alone", "order_invariance"]
        assert len(report.golden_scores) == 6
    engine.close()


def test_types_import_without_torch() -> None:
    code = "import sys, workers, workers.engine, workers.engine.types; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_a_folder_without_a_tokenizer_or_with_half_its_weights_is_refused(
    tiny_folders: dict[str, Path], tmp_path: Path
) -> None:
    engine = Engine(EngineConfig(threads=1))
    bare, half = (shutil.copytree(tiny_folders["bert"], tmp_path / name) for name in ("bare", "half"))
    for path in bare.glob("*"):
        if path.name.startswith(("tokenizer", "vocab", "special")):
            path.unlink()
    weights = next(half.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1000])
    for folder, code in ((bare, "checkpoint_incomplete"), (half, "checkpoint_unreadable")):
        with pytest.raises(EngineError) as refusal:
            engine.load(ModelSpec("m", folder, ModelKind.BI_ENCODER))
        assert refusal.value.code == code
    engine.close()
