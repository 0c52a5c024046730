"""Sparse encoders against sentence-transformers' SparseEncoder, and what must hold whatever the weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from tests.engine.inside import body_of, clear_caches
from tests.engine.tiny import HIDDEN, ROBERTA, byte_level_bpe, save_random, unigram, wordpiece
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    PooledText,
    PoolingRequest,
    PoolingTask,
    Scale,
    ScoringRequest,
)
from workers.engine.families.sparse import SpladePooler
from workers.engine.forward.packed_batch import Piece, pack

QUERIES = ("river and bridge", "what is honey?")
DOCUMENTS = (
    "The river rose after a night of rain, and the bridge was closed until the water fell again.",
    "bees",
    "A passage [SEP] of text </s> that may [MASK] answer a query <mask> in few words.",
    "Numbers such as 1, 22 and 333 are split into digits.",
    "bees",
)
SHORT: dict[str, Any] = {"max_position_embeddings": 66, **HIDDEN}


def _distilbert(vocabulary: int) -> PreTrainedModel:
    sizes: dict[str, Any] = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    return DistilBertForMaskedLM(DistilBertConfig(vocab_size=vocabulary, max_position_embeddings=66, **sizes))


def _modernbert(vocabulary: int) -> PreTrainedModel:
    special: dict[str, Any] = dict.fromkeys(
        ("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id", "pad_token_id"), 1
    )
    return ModernBertForMaskedLM(ModernBertConfig(vocab_size=vocabulary, local_attention=8, **special, **SHORT))


MASKED: dict[str, tuple[Callable[[int], PreTrainedModel], Callable[[], Any]]] = {
    "bert": (lambda v: BertForMaskedLM(BertConfig(vocab_size=v, **SHORT)), wordpiece),
    "distilbert": (_distilbert, wordpiece),
    "deberta-v2": (lambda v: DebertaV2ForMaskedLM(DebertaV2Config(vocab_size=v, **SHORT)), wordpiece),
    "roberta": (
        lambda v: RobertaForMaskedLM(RobertaConfig(vocab_size=v, pad_token_id=1, **SHORT)),
        lambda: byte_level_bpe(ROBERTA, surround=True),
    ),
    "xlm-roberta": (
        lambda v: XLMRobertaForMaskedLM(XLMRobertaConfig(vocab_size=v, pad_token_id=1, **SHORT)),
        unigram,
    ),
    "modernbert": (_modernbert, lambda: byte_level_bpe(ROBERTA, surround=True)),
}
POOLINGS = {"sum": ("sum", "relu"), "twice": ("max", "log1p_relu")}


@pytest.fixture(scope="module")
def masked_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One plain checkpoint per architecture, and BERT's once more for each way that ``modules.json`` may ask for."""
    folders = {}
    for name, (make_model, make_tokenizer) in MASKED.items():
        tokenizer = make_tokenizer()
        tokenizer.model_max_length = 60
        folders[name] = save_random(make_model, tokenizer, tmp_path_factory.mktemp(name))
    for name, (strategy, activation) in POOLINGS.items():
        folders[name] = save_random(*(MASKED["bert"][0], wordpiece()), tmp_path_factory.mktemp(name))
        write_modules(folders[name], strategy, activation)
    return folders


def write_modules(folder: Path, strategy: str, activation: str, first: str = "MLMTransformer") -> None:
    place = "sentence_transformers.sparse_encoder.models."
    types = (first, "SpladePooling")
    entries = [
        {"idx": i, "name": str(i), "path": ("", "1_SpladePooling")[i], "type": place + t} for i, t in enumerate(types)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 60, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "SparseEncoder"}))
    (folder / "1_SpladePooling").mkdir(exist_ok=True)
    config = {"pooling_strategy": strategy, "activation_function": activation, "word_embedding_dimension": None}
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def engine(masked_folders: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256))
    for name, folder in masked_folders.items():
        engine.load(ModelSpec(name, folder, ModelKind.SPARSE, dtype="float32"))
    yield engine
    engine.close()


def dense(text: PooledText, vocabulary: int) -> npt.NDArray[np.float32]:
    assert text.sparse is not None
    whole = np.zeros(vocabulary, dtype=np.float32)
    whole[text.sparse[0]] = text.sparse[1]
    return whole


def embed(engine: Engine, name: str, texts: tuple[str, ...]) -> tuple[PooledText, ...]:
    return engine.submit_pooling(PoolingRequest(name, texts, PoolingTask.EMBED)).result(60).data


@pytest.mark.parametrize("name", [*MASKED, *POOLINGS])
def test_vectors_and_scores_equal_sentence_transformers(
    engine: Engine, masked_folders: dict[str, Path], name: str
) -> None:
    library = SparseEncoder(str(masked_folders[name]), device="cpu", model_kwargs={"dtype": torch.float32})
    plain = tuple(document for document in DOCUMENTS if "[SEP]" not in document)  # the library would obey it
    queries = library.encode(list(QUERIES), convert_to_sparse_tensor=False, batch_size=1)
    documents = library.encode(list(plain), convert_to_sparse_tensor=False, batch_size=1)
    for ours, theirs in zip(embed(engine, name, plain), documents.numpy(), strict=True):
        assert ours.sparse is not None and (ours.sparse[1] > 0).all()
        np.testing.assert_allclose(dense(ours, len(theirs)), theirs, rtol=0, atol=1e-4)
    output = engine.submit(ScoringRequest(name, QUERIES, plain)).result(60)
    expected = (queries.double() @ documents.double().T).numpy()
    np.testing.assert_allclose(output.scores.reshape(2, -1), expected, rtol=1e-5, atol=1e-4)
    assert output.scale is Scale.DOT


def test_the_real_encoder_equals_the_library_and_knows_what_answers(splade_folder: Path) -> None:
    texts = ("Paris is the capital of France.", "Bees turn nectar into honey.", "word " * 400, "river " * 509 + "flood")
    queries = ("how do bees make honey", "capital of France", "flooded rivers")
    library = SparseEncoder(str(splade_folder), device="cpu", model_kwargs={"dtype": torch.float32})
    ours = Engine(EngineConfig(threads=1))
    ours.load(ModelSpec("splade", splade_folder, ModelKind.SPARSE, dtype="float32"))
    vectors = library.encode(list(texts), convert_to_sparse_tensor=False, batch_size=1).numpy()
    for text, vector in zip(embed(ours, "splade", texts), vectors, strict=True):
        np.testing.assert_allclose(dense(text, len(vector)), vector, rtol=0, atol=1e-4)
    scores = ours.submit(ScoringRequest("splade", queries, texts)).result(60).scores.reshape(3, -1)
    expected = library.encode(list(queries), convert_to_sparse_tensor=False).double().numpy() @ vectors.T
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(scores.argmax(axis=1), [1, 0, 3])
    assert ours.self_test("splade").passed
    ours.close()


@pytest.mark.parametrize("name", MASKED)
def test_neither_company_nor_order_changes_a_score(engine: Engine, name: str) -> None:
    together = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result(60).scores.reshape(2, -1)
    clear_caches(engine, name)
    backwards = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS[::-1])).result(60).scores.reshape(2, -1)
    np.testing.assert_allclose(backwards[:, ::-1], together, rtol=1e-5)
    for place, document in enumerate(DOCUMENTS):
        clear_caches(engine, name)
        alone = engine.submit(ScoringRequest(name, QUERIES, (document,), Pairing.MATRIX)).result(60).scores
        np.testing.assert_allclose(alone, together[:, place], rtol=1e-5)
    pairwise = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS[2:4], Pairing.PAIRWISE)).result(60).scores
    np.testing.assert_allclose(pairwise, together[[0, 1], [2, 3]], rtol=1e-6)


def test_all_but_one_architecture_run_packed(engine: Engine) -> None:
    padded = {name for name, info in engine.models().items() if info.execution == "padded"}
    assert padded == {"deberta-v2"}


def test_empty_texts_and_kept_vectors(engine: Engine) -> None:
    output = engine.submit(ScoringRequest("bert", ("honey", " "), ("bees", "", "river"))).result(60)
    assert [ItemStatus(s) for s in output.status] == [0, ItemStatus.EMPTY, 0, *[ItemStatus.EMPTY] * 3]
    again = engine.submit(ScoringRequest("bert", ("honey",), ("river", "bees"))).result(60)
    assert again.cached_documents == 2
    np.testing.assert_array_equal(again.scores, output.scores[[2, 0]])


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("budget", [1, 40, 95, 10_000])
def test_a_long_row_passes_the_head_in_parts(strategy: str, budget: int) -> None:
    torch.manual_seed(3)
    weight = torch.randn(10, 4)
    widest = 0

    def head(rows: torch.Tensor) -> torch.Tensor:
        nonlocal widest
        widest = max(widest, len(rows))
        return rows @ weight.T

    lengths = (3, 1, 12, 5)
    hidden = torch.randn(sum(lengths), 4)
    batch = pack([Piece(range(n)) for n in lengths], device=torch.device("cpu"))
    pooled = SpladePooler(head, 10, strategy, 1, budget)(hidden, batch, [], [0, 2, 3])
    assert widest == max(1, min(budget // 10, 20))
    for part, (ids, weights) in zip((hidden[:3], hidden[4:16], hidden[16:]), pooled.values, strict=True):
        bent = (part @ weight.T).relu().log1p()
        expected = bent.amax(dim=0) if strategy == "max" else bent.sum(dim=0)
        torch.testing.assert_close(torch.zeros(10).index_put_((ids,), weights), expected)


def test_what_is_no_number_fails_that_text_alone(masked_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("bert", masked_folders["bert"], ModelKind.SPARSE, dtype="float32"))
    positions: Any = body_of(engine, "bert").get_submodule("embeddings.position_embeddings")
    positions.weight.data[12] = float("nan")
    texts = (DOCUMENTS[0], "bees")
    output = engine.submit_pooling(PoolingRequest("bert", texts, PoolingTask.EMBED)).result(60)
    assert [text.status for text in output.data] == [ItemStatus.FAILED, ItemStatus.OK]
    scored = engine.submit(ScoringRequest("bert", ("honey", DOCUMENTS[0]), texts)).result(60)
    assert scored.errors == dict.fromkeys((0, 2, 3), "non_finite_score") and np.isfinite(scored.scores[1])
    pairwise = engine.submit(ScoringRequest("bert", texts[::-1], texts[::-1], Pairing.PAIRWISE)).result(60)
    assert pairwise.errors == {1: "non_finite_score"}
    engine.close()


def test_the_self_test_passes_in_bfloat16_too(masked_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    for dtype in ("float32", "bfloat16"):
        engine.load(ModelSpec(dtype, masked_folders["bert"], ModelKind.SPARSE, dtype=dtype, check_order=False))
        report = engine.self_test(dtype)
        assert report.passed, report
    engine.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: write_modules(folder, "mean", "relu"), "pools by mean of relu"),
        (lambda folder: write_modules(folder, "max", "gelu"), "pools by max of gelu"),
        (lambda folder: write_modules(folder, "max", "relu", first="Router"), "chain of Router, SpladePooling"),
        (
            lambda folder: (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}'),
            "puts prompts before texts",
        ),
        (
            lambda folder: (folder / "config_sentence_transformers.json").write_text(
                '{"similarity_fn_name": "cosine"}'
            ),
            "compares by cosine",
        ),
    ],
)
def test_folders_that_ask_for_more_are_refused(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    folder = save_random(MASKED["bert"][0], wordpiece(), tmp_path)
    change(folder)
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match=message):
        engine.load(ModelSpec("bert", folder, ModelKind.SPARSE, max_length=60))
    engine.close()


def test_s5_a_body_without_its_head_is_refused(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match=r"cls\.predictions") as refusal:
        engine.load(ModelSpec("bare", tiny_folders["bert"], ModelKind.SPARSE))
    assert refusal.value.code == "missing_weights"
    engine.close()


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "twice"])
def test_matching_terms_sum_to_the_score(engine: Engine, name: str) -> None:
    output = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS, explain=True)).result(60)
    assert output.explanations is not None
    for raw, why in zip(output.raw_scores, output.explanations, strict=True):
        assert why.terms is not None and why.parts[0].score == raw
        assert sum(term.product for term in why.terms) == pytest.approx(float(raw), rel=1e-5, abs=1e-5)
        assert all(term.product == term.query_weight * term.document_weight for term in why.terms)
