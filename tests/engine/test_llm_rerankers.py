"""LLM rerankers against their vendors' published recipes, run by transformers one pair at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from tests.engine.tiny_rerankers import BUILDERS, build_qwen3_export, export_raw, published_raw
from workers.engine import (
    Engine,
    EngineConfig,
    ModelKind,
    ModelSpec,
    Scale,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
)

QUERIES = ("who makes honey?", "the river rose?\n")
DOCUMENTS = ("honey", "Bees gather nectar from flowers.", "The water fell,\n\nafter a night of rain. ", "yes\nno")
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]
RECIPE_OF = {"qwen3": "qwen3", "mxbai": "mxbai", "bge-gemma": "bge-gemma"}
INSTRUCTIONS = ("", "Find the passage about bees")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    built = {name: build(tmp_path_factory.mktemp(name)) for name, build in BUILDERS.items()}
    built["qwen3-export"] = build_qwen3_export(tmp_path_factory.mktemp("qwen3-export"), built["qwen3"])
    return built


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    for name, folder in folders.items():
        engine.load(ModelSpec(name, folder, ModelKind.CROSS_ENCODER))
    yield engine
    engine.close()


def score(engine: Engine, name: str, documents: tuple[str, ...] = DOCUMENTS, **fields: object) -> ScoringOutput:
    options = ScoringOptions(**fields)  # type: ignore[arg-type]
    return engine.submit(ScoringRequest(name, QUERIES, documents, options=options)).result()


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
@pytest.mark.parametrize("name", ["qwen3", "mxbai", "bge-gemma"])
def test_raw_scores_equal_the_published_recipe(
    engine: Engine, folders: dict[str, Path], name: str, instruction: str
) -> None:
    expected = np.array(published_raw(name, folders[name], PAIRS, instruction))
    output = score(engine, name, instruction=instruction)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(output.raw_scores, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.scores, 1 / (1 + np.exp(-expected)), rtol=0, atol=1e-4)
    assert output.scale is Scale.PROBABILITY
    assert engine.models()[name].execution == "packed"


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_the_export_of_qwen3_reranker(engine: Engine, folders: dict[str, Path], instruction: str) -> None:
    expected = export_raw(folders["qwen3-export"], PAIRS, instruction)
    output = score(engine, "qwen3-export", instruction=instruction)
    np.testing.assert_allclose(output.raw_scores, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.raw_scores, score(engine, "qwen3", instruction=instruction).raw_scores, atol=1e-4)


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_roles_and_logit_score_equal_sentence_transformers(
    engine: Engine, folders: dict[str, Path], instruction: str
) -> None:
    library = CrossEncoder(str(folders["qwen3-roles"]), device="cpu")
    expected = [library.predict([pair], prompt=instruction or None)[0] for pair in PAIRS]
    output = score(engine, "qwen3-roles", instruction=instruction)
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.raw_scores, score(engine, "qwen3", instruction=instruction).raw_scores, atol=1e-4)
