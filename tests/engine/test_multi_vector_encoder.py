"""Late-interaction folders as sentence-transformers saves its MultiVectorEncoder, against the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.multi_vector_encoder.modules.multi_vector_mask import MultiVectorMask
from sentence_transformers.multi_vector_encoder.modules.token_pooling import HierarchicalTokenPooling
from torch import nn

from tests.engine.golden.checkpoints import DOCUMENTS, QUERIES, build
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ModelKind,
    ModelSpec,
    PoolingRequest,
    PoolingTask,
    ScoringRequest,
    TextRole,
)

FIXED = {"strategy": "fixed", "attend": False, "length": 12}
EXPANSIONS: dict[str, dict[str, Any]] = {
    "none": {"query_length": 9},
    "fixed": {"query_expansion": FIXED, "document_length": 15},
    "fixed-attended": {"query_expansion": {**FIXED, "attend": True}},
    "min": {"query_expansion": {**FIXED, "strategy": "min", "length": 8}, "query_length": 11},
    "token": {"query_expansion": {**FIXED, "token": "[SEP]"}},
    "mean": {"query_length": 9, "similarity_fn_name": "meanmaxsim"},
}


def save(body: Path, folder: Path, *behind: nn.Module, **settings: Any) -> MultiVectorEncoder:
    torch.manual_seed(3)
    similarity = settings.pop("similarity_fn_name", "maxsim")
    chain = [
        Transformer(str(body), max_seq_length=20, **settings),
        Dense(16, 6, bias=False, activation_function=nn.Identity(), module_input_name="token_embeddings"),
        *behind,
        Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "[Q] ", "document": "[D] the "}
    made = MultiVectorEncoder(modules=chain, device="cpu", prompts=prompts, similarity_fn_name=similarity)
    made.save_pretrained(str(folder), create_model_card=False)
    return MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose tokenizer knows the markers, and whose folder says nothing of late interaction."""
    folder = build("pylate-bert", tmp_path_factory.mktemp("body"))
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    return folder


def load(folder: Path) -> Engine:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("m", folder, ModelKind.LATE_INTERACTION, dtype="float32"))
    return engine


@pytest.mark.parametrize("name", EXPANSIONS)
def test_token_vectors_and_scores_are_the_librarys(body: Path, tmp_path: Path, name: str) -> None:
    mask = MultiVectorMask(skiplist_words=[",", ".", "no such piece"])
    library = save(body, tmp_path, mask, **EXPANSIONS[name])
    engine = load(tmp_path)
    queries = library.encode_query(list(QUERIES))
    documents = library.encode_document(list(DOCUMENTS))
    for role, texts, expected in (
        (TextRole.QUERY, QUERIES, queries),
        (TextRole.DOCUMENT, DOCUMENTS, documents),
    ):
        found = engine.submit_pooling(PoolingRequest("m", texts, PoolingTask.TOKEN_EMBED, role=role)).result(60).data
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.token_vectors is not None
            np.testing.assert_allclose(ours.token_vectors, theirs.numpy(), rtol=0, atol=1e-4)
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores
    expected_scores = library.similarity(queries, documents).numpy().ravel()
    np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=1e-4)
    engine.close()


@pytest.mark.parametrize(
    ("behind", "settings", "sentence"),
    [
        ([HierarchicalTokenPooling(pool_factor=2)], {}, "is a HierarchicalTokenPooling, which is not supported"),
        ([MultiVectorMask([","], skiplist_tasks=["query"])], {}, "skips tokens of queries"),
    ],
)
def test_what_is_not_supported_is_refused(
    body: Path, tmp_path: Path, behind: list[nn.Module], settings: dict[str, Any], sentence: str
) -> None:
    save(body, tmp_path, *behind, **settings)
    with pytest.raises(EngineError, match=sentence):
        load(tmp_path)
