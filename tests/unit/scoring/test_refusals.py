"""What a client may not ask, and that every refusal of the engine has been thought of."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import CLASSIFIERS, RERANKERS
from scoring.services.chunk_plan import BLOCK_SIZES
from scoring.services.registry import model_check
from scoring.services.scoring import BUSY, CLIENT_FAULTS

WORKERS = Path(__file__).parents[3] / "workers"
# Raised by loads alone, whose failures reach a client as ``model_load_failed``.
OF_LOADS = frozenset(
    [
        "answer_not_single_token",
        "bad_max_length",
        "bad_weights",
        "cache_folder_unusable",
        "checkpoint_incomplete",
        "checkpoint_not_found",
        "checkpoint_unreadable",
        "max_length_too_small",
        "missing_marker",
        "missing_weights",
        "no_conversion_folder",
        "no_cuda",
        "no_length_limit",
        "positive_class_needed",
        "unclear_kind",
        "unknown_cache_dtype",
        "unknown_device",
        "unknown_dtype",
        "unknown_positive_class",
        "unsupported_activation",
        "unsupported_architecture",
        "unsupported_dtype",
        "unsupported_head",
        "unsupported_module",
        "unsupported_pooling",
        "unsupported_prompt",
        "unsupported_reranker",
        "unsupported_similarity",
    ]
)
OUR_FAULTS = frozenset(("broken_prompt", "engine_failure", "not_a_text", "unknown_choice", "unsupported_attention"))


def test_every_code_of_the_engine_has_its_answer() -> None:
    codes = set()
    for path in (*WORKERS.glob("engine/**/*.py"), *WORKERS.glob("remote/*.py"), *WORKERS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("EngineError", "RequestCancelled"):
                found = {part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)}
                assert found, path
                codes |= found
    assert codes - CLIENT_FAULTS.keys() - BUSY.keys() - OF_LOADS - OUR_FAULTS == set()
    assert (OF_LOADS | OUR_FAULTS | CLIENT_FAULTS.keys()) - codes == set()


def test_every_kind_but_classifiers_can_rerank_and_has_a_size_of_chunks() -> None:
    assert set(RERANKERS) == set(BLOCK_SIZES) == set(ModelKind) - set(CLASSIFIERS)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"kind": "sparse", "weights": [1, 1, 1]}, "weights"),
        ({"kind": "hybrid", "weights": [1, 1]}, "weights"),
        ({"kind": "hybrid", "weights": [0, 0, 0]}, "weights"),
        ({"kind": "hybrid", "weights": [1, -1, 1]}, "weights"),
        ({"kind": "hybrid", "weights": [1, float("nan"), 1]}, "weights"),
        ({"kind": "hybrid", "weights": "0.4"}, "weights"),
        ({"kind": "hybrid", "dtype": "int8", "device": "cuda:1"}, "dtype"),
        ({"kind": "reranker"}, "kind"),
    ],
)
def test_registrations_that_cannot_be(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(AssayError) as refusal:
        model_check(ScoringModel(name="m", source="package:x/y", **fields))
    assert (refusal.value.status, refusal.value.param) == (422, param)
    model_check(ScoringModel(name="m", source="package:x/y", kind="hybrid", dtype="int8", weights=[0.4, 0, 1]))


def test_weights_cross_the_api_as_numbers(api: APIClient) -> None:
    body = {"name": "mixed", "kind": "hybrid", "source": "package:x/y", "weights": [0.4, 0, 1]}
    assert api.post("/api/v1/models", body).json()["weights"] == [0.4, 0, 1]
    refused = api.post("/api/v1/models", {**body, "name": "other", "weights": ["0.4", 0, 1]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "weights[0]")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("rerank", {"long_documents": "best"}, "long_documents"),
        ("score", {"chunk_overlap": -1}, "chunk_overlap"),
        ("rerank", {"use_activation": False}, "use_activation"),
        ("generative_scoring", {"items": [[1, 2], "text"]}, "items"),
        ("generative_scoring", {"items": [[1], [2, True]]}, "items[1]"),
        ("generative_scoring", {"query": [1, -1]}, "query"),
        ("generative_scoring", {"label_token_ids": [[1, 2], []]}, "label_token_ids[1]"),
        ("generative_scoring", {"label_token_ids": [3, [3]]}, "label_token_ids"),
    ],
)
def test_fields_that_cannot_be(
    api: APIClient, model: ScoringModel, path: str, fields: dict[str, Any], param: str
) -> None:
    sides = {"query": "q", "items" if path == "generative_scoring" else "documents": ["a"]}
    response = api.post(f"/{path}", {**sides, **fields})
    assert response.status_code == 422, response.content
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("fields", [{"name": "x"}, {"file": "id,text"}])
def test_an_upload_without_a_file_is_told_so(api: APIClient, fields: dict[str, str]) -> None:
    error = api.post("/api/v1/document-sets", fields, format="multipart").json()["error"]
    assert error["param"] == "file" and error["message"].startswith("The file is missing.")
    other = api.post("/api/v1/document-sets", {}, format="json")
    assert other.status_code == 415 and "text/csv" in other.json()["error"]["message"]
