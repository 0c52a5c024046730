"""What every kind owes every request: order kept, bad items alone in their badness, company without influence."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.inside import body_of, spec_of
from tests.engine.tiny import CORPUS
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Truncation,
)

KINDS = ("bi", "late", "judge")
WORDS = " ".join(CORPUS[:5]).split()
DOCUMENTS = tuple(" ".join(WORDS[i : i + 1 + 3 * i % 17]) for i in range(40))


def score(
    engine: Engine, model: str, queries: tuple[str, ...], documents: tuple[str, ...], **fields: object
) -> ScoringOutput:
    return engine.submit(ScoringRequest(model, queries, documents, **fields)).result(60)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", KINDS)
def test_v1_blank_documents_are_empty(tiny_engine: Engine, model: str) -> None:
    output = score(tiny_engine, model, ("river",), ("", "   ", "\n\t"))
    assert np.isnan(output.scores).all() and (output.status == ItemStatus.EMPTY).all() and not output.errors


@pytest.mark.parametrize("model", KINDS)
def test_v2_a_blank_document_changes_no_other(tiny_engine: Engine, model: str) -> None:
    without = score(tiny_engine, model, ("river",), DOCUMENTS[:9])
    tiny_engine.load(spec_of(tiny_engine, model))  # nothing from the cache
    output = score(tiny_engine, model, ("river", " "), ("", *DOCUMENTS[:9]))
    np.testing.assert_allclose(output.scores[1:10], without.scores, rtol=0, atol=1e-5)
    assert output.status[0] == ItemStatus.EMPTY and (output.status[10:] == ItemStatus.EMPTY).all()


@pytest.mark.parametrize("model", KINDS)
def test_s3_batch_size_and_order_do_not_matter(tiny_engine: Engine, model: str) -> None:
    expected = score(tiny_engine, model, ("the river rose", "bees"), DOCUMENTS).raw_scores.reshape(2, -1)
    shuffled = np.random.default_rng(0).permutation(len(DOCUMENTS))
    for size in (1, 3, 6, 40):
        tiny_engine.load(spec_of(tiny_engine, model))
        for start in range(0, len(shuffled), size):
            chosen = shuffled[start : start + size]
            output = score(tiny_engine, model, ("the river rose", "bees"), tuple(DOCUMENTS[i] for i in chosen))
            np.testing.assert_allclose(output.raw_scores.reshape(2, -1), expected[:, chosen], rtol=0, atol=2e-5)


@pytest.mark.parametrize("model", KINDS)
def test_pairwise_is_the_diagonal_of_the_matrix(tiny_engine: Engine, model: str) -> None:
    queries = ("river", "", "bees and honey", "river")
    documents = (DOCUMENTS[3], DOCUMENTS[4], " ", DOCUMENTS[3])
    pairwise = score(tiny_engine, model, queries, documents, pairing=Pairing.PAIRWISE)
    matrix = score(tiny_engine, model, queries, documents).scores.reshape(4, 4)
    np.testing.assert_allclose(pairwise.scores, np.diag(matrix), rtol=0, atol=2e-5)
    assert pairwise.scores[0] == pairwise.scores[3]
    refused = tiny_engine.submit(ScoringRequest(model, queries, documents[:2], Pairing.PAIRWISE))
    with pytest.raises(EngineError, match="4 queries and 2 documents"):
        refused.result(60)


@pytest.mark.parametrize("model", KINDS)
def test_i2_duplicates_score_equally_and_are_encoded_once(tiny_engine: Engine, model: str) -> None:
    output = score(tiny_engine, model, ("river",), (DOCUMENTS[5], DOCUMENTS[5], DOCUMENTS[6]))
    assert output.scores[0] == output.scores[1] != output.scores[2]
    assert tiny_engine.statistics().sequences == (2 if model == "judge" else 3)


def test_c1_many_threads_never_swap_results(tiny_engine: Engine) -> None:
    expected = {model: score(tiny_engine, model, ("river",), DOCUMENTS).raw_scores for model in KINDS}

    def ask(number: int) -> None:
        model, chosen = KINDS[number % 3], [(number * 7 + i) % len(DOCUMENTS) for i in range(1 + number % 9)]
        output = score(tiny_engine, model, ("river",), tuple(DOCUMENTS[i] for i in chosen))
        np.testing.assert_allclose(output.raw_scores, expected[model][chosen], rtol=0, atol=2e-5)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(200)))
    statistics = tiny_engine.statistics()
    assert (statistics.requests_in_flight, statistics.failed_requests, statistics.reserved_bytes) == (0, 0, 0)


@pytest.mark.parametrize("model", ["bi", "late"])
def test_c2_usage_is_each_requests_own(tiny_engine: Engine, model: str) -> None:
    many = tuple(f"{i} river" for i in range(1000))
    futures = [tiny_engine.submit(ScoringRequest(model, ("bees",), documents)) for documents in (many, ("river",))]
    large, small = (future.result(60) for future in futures)
    assert small.prompt_tokens == score(tiny_engine, model, ("bees",), ("river",)).prompt_tokens < 20
    assert large.prompt_tokens > 4000


def test_truncation_can_be_refused(tiny_engine: Engine) -> None:
    for model in KINDS:
        options = ScoringOptions(truncation=Truncation.ERROR, max_tokens_per_document=5)
        future = tiny_engine.submit(ScoringRequest(model, ("river",), ("short", "river " * 30), options=options))
        with pytest.raises(EngineError, match=r"documents\[1\] by") as caught:
            future.result(60)
        assert caught.value.code == "too_long"


def test_what_is_no_text_is_refused_and_not_raised(tiny_engine: Engine) -> None:
    texts: Any = ("river", None)
    for queries, documents in ((("river",), texts), (texts, ("river",))):
        refused = tiny_engine.submit(ScoringRequest("late", queries, documents))
        with pytest.raises(EngineError, match=r"\[1\] is None, which is no text") as caught:
            refused.result(60)
        assert caught.value.code == "not_a_text"


def test_an_unknown_model_names_the_loaded_ones(tiny_engine: Engine) -> None:
    with pytest.raises(EngineError, match="bi, judge, late") as caught:
        score(tiny_engine, "nothing", ("a",), ("b",))
    assert caught.value.code == "model_not_loaded"


def test_invisible_characters_alone_are_empty(tiny_engine: Engine) -> None:
    output = score(tiny_engine, "late", ("river",), ("\u200b", "river"))
    np.testing.assert_array_equal(output.status, [ItemStatus.EMPTY, ItemStatus.OK])
    output = score(tiny_engine, "late", ("\u200b",), ("river", "bees"))
    np.testing.assert_array_equal(output.status, [ItemStatus.EMPTY, ItemStatus.EMPTY])


@pytest.fixture
def poisoned(tiny_folders: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies of the tiny models in which "honey" has a broken embedding: NaN, infinite, or with a sum beyond
    float16."""
    made = {}
    for architecture, weight in (("bert", "embeddings.word_embeddings.weight"), ("llama", "model.embed_tokens.weight")):
        for fault, value in (("nan", float("nan")), ("infinity", float("inf")), ("overflow", 65_000.0)):
            folder = made[f"{architecture}-{fault}"] = tmp_path / f"{architecture}-{fault}"
            shutil.copytree(tiny_folders[architecture], folder)
            vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
            weights = load_file(folder / "model.safetensors")
            for token in {"honey", "Ġhoney"} & vocabulary.keys():
                weights[weight][vocabulary[token], 0] = value
            if architecture == "bert" and fault == "overflow":
                weights["embeddings.token_type_embeddings.weight"][0, 0] = 600.0
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return made


@pytest.mark.parametrize("kind", [ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION, ModelKind.GENERATIVE])
@pytest.mark.parametrize("fault", ["nan", "infinity"])
def test_s8_a_broken_number_fails_its_item_only(poisoned: dict[str, Path], kind: ModelKind, fault: str) -> None:
    architecture = "llama" if kind is ModelKind.GENERATIVE else "bert"
    engine = Engine(EngineConfig(threads=1))
    try:
        engine.load(ModelSpec("m", poisoned[f"{architecture}-{fault}"], kind))
        documents = ("the river rose", "bees dry honey in the hive", "a passage is text")
        output = score(engine, "m", ("river",), documents)
        np.testing.assert_array_equal(output.status, [ItemStatus.OK, ItemStatus.FAILED, ItemStatus.OK])
        assert output.errors == {1: "non_finite_score"} and np.isnan(output.scores[1])
        alone = score(engine, "m", ("river",), documents[::2])
        np.testing.assert_allclose(output.scores[::2], alone.scores, rtol=0, atol=1e-5)
        assert engine.statistics().non_finite == 1
    finally:
        engine.close()


@pytest.mark.parametrize("kind", [ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION])
def test_what_overflows_in_half_precision_is_retried_in_float32(poisoned: dict[str, Path], kind: ModelKind) -> None:
    engine = Engine(EngineConfig(threads=1))
    try:
        for dtype in ("float16", "float32"):
            engine.load(ModelSpec(dtype, poisoned["bert-overflow"], kind, dtype=dtype))
        documents = ("the river rose", "bees dry honey in the hive")
        half, single = (score(engine, dtype, ("river",), documents) for dtype in ("float16", "float32"))
        assert (half.status == ItemStatus.OK).all()
        np.testing.assert_allclose(half.scores, single.scores, rtol=0.05, atol=0.05)
        assert engine.statistics().float32_retries == 1
    finally:
        engine.close()


def test_an_exception_in_a_micro_batch_fails_its_requests_and_the_runner_lives(tiny_engine: Engine) -> None:
    """A weight of the wrong shape makes the forward raise, as a device fault would."""
    before = score(tiny_engine, "bi", ("river",), DOCUMENTS[:3]).scores
    norm: Any = body_of(tiny_engine, "judge").norm
    whole, norm.weight = norm.weight, torch.nn.Parameter(torch.ones(7), requires_grad=False)
    with pytest.raises(EngineError, match="must match the size") as caught:
        score(tiny_engine, "judge", ("river",), DOCUMENTS[:3])
    assert caught.value.code == "engine_failure"
    norm.weight = whole
    assert np.isfinite(score(tiny_engine, "judge", ("river",), DOCUMENTS[:3]).scores).all()
    np.testing.assert_array_equal(score(tiny_engine, "bi", ("river",), DOCUMENTS[:3]).scores, before)


def test_out_of_memory_halves_the_micro_batch_once(tiny_engine: Engine) -> None:
    """A hook on the forward stands for a device whose memory ends at so many tokens a row."""
    whole = score(tiny_engine, "late", ("river",), DOCUMENTS).scores
    tiny_engine.load(spec_of(tiny_engine, "late"))
    room = {"tokens": 200}

    def refuse(module: torch.nn.Module, args: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        if inputs["input_ids"].shape[1] > room["tokens"]:
            raise torch.OutOfMemoryError("no room")

    body_of(tiny_engine, "late").register_forward_pre_hook(refuse, with_kwargs=True)
    halved = score(tiny_engine, "late", ("river",), DOCUMENTS).scores
    np.testing.assert_allclose(halved, whole, rtol=0, atol=1e-5)
    assert tiny_engine.statistics().out_of_memory > 0
    room["tokens"] = 1
    with pytest.raises(EngineError, match="no room") as caught:
        score(tiny_engine, "late", ("honey",), DOCUMENTS)
    assert caught.value.code == "out_of_memory"


def test_closing_answers_everything(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=64))
    engine.load(ModelSpec("bi", tiny_folders["bert"], ModelKind.BI_ENCODER))
    futures = [engine.submit(ScoringRequest("bi", (f"query {i}",), DOCUMENTS)) for i in range(20)]
    closing = threading.Thread(target=engine.close)
    closing.start()
    outcomes = [future.exception(60) for future in futures]
    closing.join(60)
    assert all(error is None or (isinstance(error, EngineError) and error.code == "closed") for error in outcomes)
    with pytest.raises(EngineError, match="closed"):
        engine.submit(ScoringRequest("bi", ("a",), ("b",))).result(60)


@pytest.mark.parametrize("name", ["late", "judge"])
def test_dimensions_are_refused_where_there_is_no_dense_vector(tiny_engine: Engine, name: str) -> None:
    request = ScoringRequest(name, ("river",), ("the river rose",), options=ScoringOptions(dimensions=8))
    with pytest.raises(EngineError, match="Leave dimensions out"):
        tiny_engine.submit(request).result(60)
