"""Cross-encoders of every architecture against transformers, one pair at a time, and against sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.engine.inside import body_of
from tests.engine.tiny import CORPUS
from tests.engine.tiny_pairs import CROSS_ENCODERS, PADDED, build_cross_encoder, write_settings
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    Scale,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Truncation,
)

QUERIES = ("who makes honey?", "the river rose", "numbers: 22, 333")
DOCUMENTS = ("honey", "Bees gather nectar from flowers.", "The water fell again, after a night of rain.", "yes\nno")
DECODERS = ("qwen3", "llama", "gemma")  # without a pad token, which only transformers one by one can do
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build_cross_encoder(name, tmp_path_factory.mktemp(name)) for name in CROSS_ENCODERS}


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256))
    for name, folder in folders.items():
        engine.load(ModelSpec(name, folder, ModelKind.CROSS_ENCODER))
    yield engine
    engine.close()


@pytest.fixture
def fresh_engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    yield engine
    engine.close()


def load(engine: Engine, folder: Path, **fields: object) -> None:
    engine.load(ModelSpec("pairs", folder, ModelKind.CROSS_ENCODER, **fields))  # type: ignore[arg-type]


def score(
    engine: Engine, name: str, queries: tuple[str, ...], documents: tuple[str, ...], **fields: object
) -> ScoringOutput:
    options = ScoringOptions(**fields)  # type: ignore[arg-type]
    return engine.submit(ScoringRequest(name, queries, documents, options=options)).result()


def library_logits(folder: Path, pairs: list[tuple[str, str]]) -> npt.NDArray[np.float32]:
    """``[pairs, labels]`` of transformers' own forward, one pair at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        rows = [model(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs]
    logits: npt.NDArray[np.float32] = torch.stack(rows).numpy()
    return logits


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_raw_scores_equal_transformers_one_by_one(engine: Engine, folders: dict[str, Path], name: str) -> None:
    output = score(engine, name, QUERIES, DOCUMENTS)
    expected = library_logits(folders[name], PAIRS)[:, 0]
    assert np.ptp(expected) > 0.1  # the pairs differ at all
    np.testing.assert_allclose(output.raw_scores, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.scores, 1 / (1 + np.exp(-expected)), rtol=0, atol=1e-4)
    assert output.scale is Scale.PROBABILITY
    assert engine.models()[name].execution == ("padded" if name in PADDED else "packed")


@pytest.mark.parametrize("name", [name for name in CROSS_ENCODERS if name not in DECODERS])
def test_scores_equal_sentence_transformers(engine: Engine, folders: dict[str, Path], name: str) -> None:
    expected = CrossEncoder(str(folders[name]), device="cpu").predict(PAIRS, batch_size=5)
    output = score(engine, name, QUERIES, DOCUMENTS)
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-4)
