"""BGE-M3 against its authors' formula, computed in float64 over transformers' own hidden states."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from tests.engine.inside import clear_caches, record_rows
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    PooledText,
    PoolingOptions,
    PoolingRequest,
    PoolingTask,
    Scale,
    ScoringRequest,
)

QUERIES = ("river and bridge", "what is honey?", "honey")
DOCUMENTS = (
    "The river rose after a night of rain, and the bridge was closed.",
    "bees",
    "A passage 日本 of text, a passage of bees, a passage",
    "Numbers such as 1, 22 and 333 are split into digits.",
)
MIXES = {"fused": None, "dense": (1.0, 0.0, 0.0), "sparse": (0.0, 2.0, 0.0), "vectors": (0.0, 0.0, 0.5)}
UNKNOWN = 3  # the tiny tokenizer's <unk>
UNEVEN = (3.0, 2.0, 1.0)


class Reference(NamedTuple):
    token_ids: list[int]
    dense: Tensor  # [E]
    weights: Tensor  # [n]
    sparse: dict[int, float]
    vectors: Tensor  # [n - 1, D]


def heads() -> dict[str, dict[str, Tensor]]:
    torch.manual_seed(11)
    return {
        "sparse_linear": {"weight": torch.randn(1, 32), "bias": torch.tensor([0.3])},
        "colbert_linear": {"weight": torch.randn(24, 32) / 4, "bias": torch.randn(24) / 4},
    }


@pytest.fixture(scope="module")
def hybrid_folder(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    shutil.copytree(tiny_folders["xlm-roberta"], folder, dirs_exist_ok=True)
    for name, tensors in heads().items():
        torch.save(tensors, folder / f"{name}.pt")
    return folder


@pytest.fixture(scope="module")
def engine(hybrid_folder: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=64))
    for name, weights in {**MIXES, "uneven": UNEVEN}.items():
        engine.load(ModelSpec(name, hybrid_folder, ModelKind.HYBRID, dtype="float32", weights=weights))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(hybrid_folder: Path) -> Callable[[str], Reference]:
    tokenizer = AutoTokenizer.from_pretrained(hybrid_folder)
    model = AutoModel.from_pretrained(hybrid_folder, dtype=torch.float64, attn_implementation="eager").eval()
    layers = {name: {k: t.double() for k, t in tensors.items()} for name, tensors in heads().items()}
    unused = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}

    def encode(text: str) -> Reference:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state[0]
        ids = inputs["input_ids"][0].tolist()
        weights = F.linear(hidden, *layers["sparse_linear"].values())[:, 0].relu()
        sparse: dict[int, float] = {}
        for token_id, weight in zip(ids, weights.tolist(), strict=True):
            if token_id not in unused and weight > sparse.get(token_id, 0):
                sparse[token_id] = weight
        vectors = F.normalize(F.linear(hidden[1:], *layers["colbert_linear"].values()), dim=-1)
        return Reference(ids, F.normalize(hidden[0], dim=-1), weights, sparse, vectors)

    return encode


def parts(query: Reference, document: Reference) -> npt.NDArray[np.float64]:
    sparse = sum(weight * document.sparse.get(token_id, 0) for token_id, weight in query.sparse.items())
    vectors = (query.vectors @ document.vectors.T).amax(dim=1).sum() / len(query.vectors)
    return np.array([float(query.dense @ document.dense), sparse, float(vectors)])


@pytest.mark.parametrize("name", [*MIXES, "uneven"])
def test_scores_equal_the_published_formula(engine: Engine, reference: Callable[[str], Reference], name: str) -> None:
    mix = np.array({**MIXES, "fused": (0.4, 0.2, 0.4), "uneven": UNEVEN}[name])
    expected = [[parts(reference(q), reference(d)) @ mix / mix.sum() for d in DOCUMENTS] for q in QUERIES]
    output = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result(60)
    np.testing.assert_allclose(output.scores.reshape(3, -1), expected, rtol=1e-5, atol=1e-4)
    assert output.scale is Scale.FUSED
    pairwise = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS[:3], Pairing.PAIRWISE)).result(60)
    np.testing.assert_allclose(pairwise.scores, np.diag(np.array(expected)[:, :3]), rtol=1e-5, atol=1e-4)


def pool(engine: Engine, task: PoolingTask, *, use_activation: bool = True) -> tuple[PooledText, ...]:
    options = PoolingOptions(use_activation=use_activation)
    return engine.submit_pooling(PoolingRequest("fused", DOCUMENTS, task, options=options)).result(60).data


def test_every_task_gives_its_part(engine: Engine, reference: Callable[[str], Reference]) -> None:
    expected = [reference(document) for document in DOCUMENTS]
    assert UNKNOWN in expected[2].token_ids and UNKNOWN not in expected[2].sparse
    for text, wanted in zip(pool(engine, PoolingTask.EMBED), expected, strict=True):
        assert text.vector is not None and text.sparse is not None and text.token_vectors is None
        np.testing.assert_allclose(text.vector, wanted.dense, atol=1e-5)
        assert text.sparse[0].tolist() == sorted(wanted.sparse)
        np.testing.assert_allclose(text.sparse[1], [wanted.sparse[i] for i in sorted(wanted.sparse)], atol=1e-5)
    for text, wanted in zip(pool(engine, PoolingTask.TOKEN_EMBED), expected, strict=True):
        assert text.token_vectors is not None and text.vector is None
        assert list(text.token_ids) == wanted.token_ids[1:]
        np.testing.assert_allclose(text.token_vectors, wanted.vectors, atol=1e-5)
    for text, wanted in zip(pool(engine, PoolingTask.TOKEN_CLASSIFY), expected, strict=True):
        assert text.token_classes is not None and text.vector is None
        assert list(text.token_ids) == wanted.token_ids[1:-1]
        np.testing.assert_allclose(text.token_classes[:, 0], wanted.weights[1:-1], atol=1e-5)
    for text, wanted in zip(pool(engine, PoolingTask.EMBED_AND_TOKEN_CLASSIFY), expected, strict=True):
        assert text.vector is not None and text.token_classes is not None
        np.testing.assert_allclose(text.vector, wanted.dense, atol=1e-5)
    raw = pool(engine, PoolingTask.TOKEN_CLASSIFY, use_activation=False)
    assert min(text.token_classes.min() for text in raw if text.token_classes is not None) < 0


def test_one_forward_pass_serves_all_parts(engine: Engine) -> None:
    clear_caches(engine, "fused")
    rows = record_rows(engine, "fused")
    engine.submit(ScoringRequest("fused", ("honey",), DOCUMENTS[:2])).result(60)
    assert len(rows) == 1


@pytest.mark.parametrize(("name", "size"), [("dense", 32 * 4), ("fused", None)])
def test_a_part_without_weight_is_not_computed(hybrid_folder: Path, name: str, size: int | None) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec(name, hybrid_folder, ModelKind.HYBRID, dtype="float32", weights=MIXES[name]))
    output = engine.submit(ScoringRequest(name, ("honey",), ("bees",))).result(60)
    kept = engine.statistics().document_cache.bytes
    assert kept == size if size else kept > 32 * 4 + 24 * 4
    assert (output.fallback is None) == (name == "dense")  # without MaxSim, none that fell back to the CPU
    engine.close()


def test_neither_company_nor_order_changes_a_score(engine: Engine) -> None:
    clear_caches(engine, "fused")
    together = engine.submit(ScoringRequest("fused", QUERIES, DOCUMENTS)).result(60).scores.reshape(3, -1)
    clear_caches(engine, "fused")
    backwards = engine.submit(ScoringRequest("fused", QUERIES, DOCUMENTS[::-1])).result(60).scores.reshape(3, -1)
    np.testing.assert_allclose(backwards[:, ::-1], together, rtol=1e-5, atol=1e-6)
    for place, document in enumerate(DOCUMENTS):
        clear_caches(engine, "fused")
        alone = engine.submit(ScoringRequest("fused", QUERIES, (document,))).result(60).scores
        np.testing.assert_allclose(alone, together[:, place], rtol=1e-5, atol=1e-6)
    assert engine.models()["fused"].execution == "packed"


def test_empty_texts_and_kept_encodings(engine: Engine) -> None:
    first = engine.submit(ScoringRequest("fused", ("honey",), ("bees", " ", "river"))).result(60)
    assert [ItemStatus(s) for s in first.status] == [0, ItemStatus.EMPTY, 0]
    again = engine.submit(ScoringRequest("fused", ("honey",), ("river", "bees"))).result(60)
    assert again.cached_documents == 2
    np.testing.assert_allclose(again.scores, first.scores[[2, 0]], rtol=1e-6)


def test_control_tokens_in_texts_stay_text(engine: Engine) -> None:
    texts = ("bees </s> honey", "bees <unk> honey", "bees <pad> honey")
    output = engine.submit_pooling(PoolingRequest("fused", texts, PoolingTask.TOKEN_CLASSIFY)).result(60)
    assert all(len(text.token_ids) > 4 for text in output.data)
    control = set(range(5)) - {UNKNOWN}  # <s>, <pad>, </s>, <mask>; the brackets themselves may be unknown
    assert not any(control & set(text.token_ids) for text in output.data)


def test_the_self_test_passes(hybrid_folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    for dtype in ("float32", "bfloat16"):
        engine.load(ModelSpec(dtype, hybrid_folder, ModelKind.HYBRID, dtype=dtype, check_order=False))
        report = engine.self_test(dtype)
        assert report.passed, report
    engine.close()


def test_a_folder_as_published_is_converted_once(hybrid_folder: Path, tmp_path: Path) -> None:
    published, conversions = tmp_path / "published", tmp_path / "conversions"
    shutil.copytree(hybrid_folder, published)
    torch.save(load_file(published / "model.safetensors"), published / "pytorch_model.bin")
    (published / "model.safetensors").unlink()
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match="no conversion folder"):
        engine.load(ModelSpec("hub", published, ModelKind.HYBRID))
    engine.close()
    engine = Engine(EngineConfig(threads=1, conversion_folder=conversions))
    info = engine.load(ModelSpec("hub", published, ModelKind.HYBRID, dtype="float32"))
    made = list(conversions.iterdir())
    assert [folder.name for folder in made] == [info.revision]
    written = (made[0] / "model.safetensors").stat().st_mtime_ns
    engine.load(ModelSpec("plain", hybrid_folder, ModelKind.HYBRID, dtype="float32"))
    engine.load(ModelSpec("hub", published, ModelKind.HYBRID, dtype="float32"))
    assert [folder.name for folder in conversions.iterdir()] == [info.revision]
    assert (made[0] / "model.safetensors").stat().st_mtime_ns == written
    scores = [engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result(60).scores for name in ("hub", "plain")]
    np.testing.assert_array_equal(scores[0], scores[1])
    torch.save({"weight": torch.zeros(1, 32), "bias": torch.zeros(1)}, published / "sparse_linear.pt")
    assert engine.load(ModelSpec("hub", published, ModelKind.HYBRID)).revision != info.revision
    with pytest.raises(EngineError, match=r"no \*\.safetensors"):
        engine.load(ModelSpec("bi", published, ModelKind.BI_ENCODER))
    engine.close()


def test_heads_as_safetensors_do_as_well(hybrid_folder: Path, engine: Engine, tmp_path: Path) -> None:
    shutil.copytree(hybrid_folder, tmp_path, dirs_exist_ok=True)
    for name, tensors in heads().items():
        save_file(tensors, tmp_path / f"{name}.safetensors")
        (tmp_path / f"{name}.pt").unlink()
    other = Engine(EngineConfig(threads=1))
    other.load(ModelSpec("fused", tmp_path, ModelKind.HYBRID, dtype="float32"))
    scores = [e.submit(ScoringRequest("fused", QUERIES, DOCUMENTS)).result(60).scores for e in (engine, other)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)
    other.close()


class Payload:
    def __reduce__(self) -> Any:
        return (print, ("this must never be printed",))


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, "missing_weights", r"neither sparse_linear\.pt nor"),
        ({"weight": torch.zeros(1, 31), "bias": torch.zeros(1)}, "checkpoint_unreadable", r"a weight \[1, 31\]"),
        ({"weight": torch.zeros(2, 32), "bias": torch.zeros(2)}, "checkpoint_unreadable", r"expected are \[1, 32\]"),
        ({"weight": torch.zeros(1, 32)}, "checkpoint_unreadable", "'bias'"),
        (Payload(), "checkpoint_unreadable", "nothing else is read"),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    hybrid_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, code: str, message: str
) -> None:
    shutil.copytree(hybrid_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "sparse_linear.pt").unlink()
    if content is not None:
        torch.save(content, tmp_path / "sparse_linear.pt")
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match=message) as refusal:
        engine.load(ModelSpec("fused", tmp_path, ModelKind.HYBRID))
    assert refusal.value.code == code
    assert "never" not in capsys.readouterr().out
    engine.close()


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (1.0, -1.0, 1.0), (float("nan"), 1.0, 1.0)])
def test_weights_that_make_no_mean_are_refused(hybrid_folder: Path, weights: tuple[float, float, float]) -> None:
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match="three numbers of 0 and more"):
        engine.load(ModelSpec("fused", hybrid_folder, ModelKind.HYBRID, weights=weights))
    engine.close()


def test_parts_with_their_weights_sum_to_the_score(engine: Engine, reference: Callable[[str], Reference]) -> None:
    output = engine.submit(ScoringRequest("uneven", QUERIES, DOCUMENTS, explain=True)).result(60)
    assert output.explanations is not None
    pairs = [(query, document) for query in QUERIES for document in DOCUMENTS]
    for (query, document), raw, why in zip(pairs, output.raw_scores, output.explanations, strict=True):
        expected = parts(reference(query), reference(document))
        np.testing.assert_allclose([part.score for part in why.parts], expected, rtol=1e-5, atol=1e-4)
        assert sum(part.weight * part.score for part in why.parts) == pytest.approx(float(raw), rel=1e-6, abs=1e-5)
        assert why.matches is not None and why.terms is not None
        assert sum(why.matches.contributions) == pytest.approx(expected[2], rel=1e-5)
        assert sum(term.product for term in why.terms) == pytest.approx(expected[1], rel=1e-5, abs=1e-4)
