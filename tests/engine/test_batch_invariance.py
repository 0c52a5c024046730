"""On the CPU a text's numbers are the same to the bit whatever runs beside it, in whatever order, cached or not: what a
job stores does not depend on who was interrupted when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine import tiny
from tests.engine.inside import clear_caches
from tests.engine.tiny_pairs import CROSS_ENCODERS, build_cross_encoder
from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, Pairing, ScoringRequest

Scores = npt.NDArray[np.float32]

# Heads of 32 dimensions, as real models have and more: of 8, as the other tests' checkpoints, SDPA's products depend on
# where a thread's scratch memory lies.
MODELS = {
    "bert": ModelKind.BI_ENCODER,
    "mpnet": ModelKind.BI_ENCODER,  # padded
    "modernbert": ModelKind.LATE_INTERACTION,
    "llama": ModelKind.GENERATIVE,
    "gemma3": ModelKind.GENERATIVE,  # with a sliding window
}
WORDS = " ".join(tiny.CORPUS[:5]).split()
GENERATOR = random.Random(7)
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)
DOCUMENTS = tuple(" ".join(GENERATOR.choices(WORDS, k=GENERATOR.choice(LENGTHS))) for _ in range(24))
QUERIES = tuple(" ".join(GENERATOR.choices(WORDS, k=count)) for count in (1, 4, 11))
ALL = (len(QUERIES), len(DOCUMENTS))


@pytest.fixture(scope="module", params=[*MODELS, "cross-encoder", "minilm", "minilm-int8", "splade"])
def spec(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path, splade_folder: Path
) -> Iterator[ModelSpec]:
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny.HIDDEN, "hidden_size", 64)
        patch.setitem(tiny.HIDDEN, "num_attention_heads", 2)
        built, fields, tokenizer = CROSS_ENCODERS["bert"]
        patch.setitem(
            CROSS_ENCODERS, "bert", (built, {**fields, "hidden_size": 64, "num_attention_heads": 2}, tokenizer)
        )
        if name == "cross-encoder":
            yield ModelSpec("m", build_cross_encoder("bert", folder), ModelKind.CROSS_ENCODER, check_order=False)
        elif name == "splade":
            yield ModelSpec("m", splade_folder, ModelKind.SPARSE)
        elif name.startswith("minilm"):
            dtype = "int8" if name.endswith("int8") else "float32"
            yield ModelSpec("m", minilm_folder, ModelKind.BI_ENCODER, dtype=dtype)
        else:
            yield ModelSpec("m", tiny.build(name, folder), MODELS[name], max_length=60 if name == "mpnet" else None)


@pytest.fixture(scope="module")
def undisturbed(spec: ModelSpec) -> Scores:
    engine = loaded(spec)
    scores = score(engine, QUERIES, DOCUMENTS).reshape(ALL)
    engine.close()
    assert len(np.unique(scores)) > len(DOCUMENTS)
    return scores


@pytest.mark.parametrize(("threads", "budget"), [(1, 64), (2, 2048)])
def test_company_order_and_caches_change_no_bit(
    spec: ModelSpec, undisturbed: Scores, threads: int, budget: int
) -> None:
    engine = loaded(spec, threads, budget)
    assert np.array_equal(score(engine, QUERIES, DOCUMENTS).reshape(ALL), undisturbed)
    order = random.Random(budget).sample(range(len(DOCUMENTS)), len(DOCUMENTS))
    shuffled = score(engine, QUERIES[::-1], tuple(DOCUMENTS[i] for i in order)).reshape(ALL)  # from the caches
    assert np.array_equal(shuffled[::-1], undisturbed[:, order])
    clear_caches(engine, "m")
    for start in range(0, len(DOCUMENTS), 5):  # other blocks; each finds its query, or what its prompts begin with
        block = slice(start, start + 5)
        assert np.array_equal(score(engine, QUERIES[1:2], DOCUMENTS[block]), undisturbed[1, block])
    clear_caches(engine, "m")
    score(engine, QUERIES[:1], DOCUMENTS[3:9])
    assert np.array_equal(score(engine, QUERIES[:1], DOCUMENTS), undisturbed[0])  # some of them from the caches
    for document in (0, 7, 20):
        clear_caches(engine, "m")
        assert np.array_equal(
            score(engine, QUERIES[2:], DOCUMENTS[document : document + 1]), undisturbed[2, [document]]
        )
    pairs = [(q, d) for q in range(len(QUERIES)) for d in range(len(DOCUMENTS))]
    chosen = random.Random(budget).sample(pairs, 31)
    texts = tuple(QUERIES[q] for q, _ in chosen), tuple(DOCUMENTS[d] for _, d in chosen)
    clear_caches(engine, "m")
    assert np.array_equal(score(engine, *texts, Pairing.PAIRWISE), [undisturbed[pair] for pair in chosen])
    engine.close()


def test_requests_that_share_micro_batches_get_what_they_get_alone(spec: ModelSpec, undisturbed: Scores) -> None:
    engine = loaded(spec, 2, 300)
    requests = [(q, start) for start in range(0, len(DOCUMENTS), 6) for q in range(len(QUERIES))]
    futures = [engine.submit(ScoringRequest("m", (QUERIES[q],), DOCUMENTS[s : s + 6])) for q, s in requests]
    for (query, start), future in zip(requests, futures, strict=True):
        assert np.array_equal(future.result(120).raw_scores, undisturbed[query, start : start + 6])
    engine.close()


def loaded(spec: ModelSpec, threads: int = 2, budget: int = 2048) -> Engine:
    engine = Engine(EngineConfig(threads=threads, max_batch_tokens=budget))
    engine.load(spec)
    return engine


def score(
    engine: Engine, queries: tuple[str, ...], documents: tuple[str, ...], pairing: Pairing = Pairing.MATRIX
) -> Scores:
    return engine.submit(ScoringRequest("m", queries, documents, pairing)).result(120).raw_scores
