"""A list of documents packed once is scored without their texts, to the same bits as the texts are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.inside import spec_of
from tests.engine.tiny import CORPUS
from workers.engine import (
    EncodingRequest,
    Engine,
    EngineConfig,
    EngineError,
    ModelKind,
    ModelSpec,
    PackedList,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
)

WORDS = " ".join(CORPUS[:5]).split()
TEXTS = tuple(" ".join(WORDS[i : i + 1 + 5 * i % 23]) for i in range(30))
DOCUMENTS = (*TEXTS[:12], "", TEXTS[3], *TEXTS[12:], " \n")  # empty ones and a duplicate
QUERIES = ("the river rose", "bees")
SOME = (0, 13, 3, 12, 29)


@pytest.fixture(scope="module", params=["model", "float16", "int8"])
def engine(request: pytest.FixtureRequest, tiny_folders: dict[str, Path], splade_folder: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256, cache_dtype=request.param))
    engine.load(ModelSpec("bi", tiny_folders["bert"], ModelKind.BI_ENCODER))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    engine.load(ModelSpec("sparse", splade_folder, ModelKind.SPARSE))
    yield engine
    engine.close()


def ranked(engine: Engine, name: str, chosen: tuple[int, ...] | None = None, **fields: object) -> ScoringOutput:
    packed = PackedList("set", len(chosen or DOCUMENTS), chosen)
    return engine.submit(ScoringRequest(name, QUERIES, (), packed=packed, **fields)).result(60)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bi", "late", "sparse"])
def test_a_packed_list_scores_to_the_bit_as_its_texts_do(engine: Engine, name: str) -> None:
    by_text = engine.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result(60)
    done = engine.pre_encode(EncodingRequest(name, DOCUMENTS, pack_as="set")).result(60)
    assert (done.encoded, done.cached, done.empty) == (0, len(set(TEXTS)), 2)
    tokens = engine.statistics().tokens
    packed, some = ranked(engine, name), ranked(engine, name, SOME)
    assert engine.statistics().tokens == tokens  # the queries too are known
    np.testing.assert_array_equal(packed.scores, by_text.scores)
    np.testing.assert_array_equal(packed.status, by_text.status)
    assert (packed.prompt_tokens, packed.cached_documents) == (by_text.prompt_tokens, len(set(TEXTS)))
    matrix = by_text.scores.reshape(2, -1)
    np.testing.assert_array_equal(some.scores.reshape(2, -1), matrix[:, list(SOME)])
    assert some.cached_documents == 3  # the duplicate once, the empty one not at all


def test_a_list_is_of_its_limit_and_of_its_weights(engine: Engine) -> None:
    engine.pre_encode(EncodingRequest("late", DOCUMENTS, pack_as="set")).result(60)
    with pytest.raises(EngineError) as refused:
        ranked(engine, "late", options=ScoringOptions(max_tokens_per_document=3))
    assert refused.value.code == "not_packed"
    assert ranked(engine, "late").cached_documents
    engine.load(spec_of(engine, "late"))
    with pytest.raises(EngineError) as refused:
        ranked(engine, "late")
    assert refused.value.code == "not_packed"


def test_a_list_over_the_budget_is_refused_with_what_it_takes(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1, packed_cache_bytes=1000))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    with pytest.raises(EngineError, match=r"30 documents take \d+ MiB") as refused:
        engine.pre_encode(EncodingRequest("late", TEXTS, pack_as="set")).result(60)
    assert refused.value.code == "packed_too_large"
    engine.close()
