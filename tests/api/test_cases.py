"""The list of faults that ours must not have, over real HTTP: what other files do not already try there.

A test is named by its case. V1, V5, V6, I1, I2 and T1 by every kind of model are in ``test_scoring``, files (I4, T3) in
``test_uploads``, C3 in ``tests/integration/test_server``; what no request can bring about (C5) is tried on the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from scoring.services.bundled import MINILM
from tests.api.schema import check, optional_fields
from tests.engine.tiny import build
from tests.engine.tiny_pairs import build_cross_encoder
from tests.integration.checkpoints import build_sparse
from tests.integration.rig import wait_for
from tests.integration.running import registered
from tests.stack import Stack

pytestmark = pytest.mark.stack
Client = httpx.Client
QUERY: Final = "how do bees make honey?"
TEXTS: Final = [
    "The river rose after a night of rain.",
    "Bees gather nectar and dry it in the hive until it is honey.",
    "A passage is a piece of text.",
]
NEAR: Final = 1e-4  # float32: what is beside a text in a micro-batch may change the last bits
JUDGE: Final = {"template": "{{ query }}\n{{ item }}\nAnswer:", "labels": ["yes", "no"]}


def build_poisoned(folder: Path) -> Path:
    """A cross-encoder for which "river" is not a number."""
    build_cross_encoder("bert", folder)
    weights = load_file(folder / "model.safetensors")
    (embedding,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    weights[embedding][vocabulary["river"], 0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


TINY: Final[dict[str, tuple[str, Callable[[Path], Path], dict[str, Any]]]] = {
    "case-pairs": ("cross-encoder", partial(build_cross_encoder, "bert"), {}),
    "case-roberta": ("cross-encoder", partial(build_cross_encoder, "roberta"), {}),
    "case-bfloat16": ("cross-encoder", partial(build_cross_encoder, "bert"), {"dtype": "bfloat16"}),
    "case-not-finite": ("cross-encoder", build_poisoned, {}),
    "case-causal": ("cross-encoder", partial(build_cross_encoder, "llama"), {}),  # without a pad token
    "case-sparse": ("sparse", build_sparse, {}),
    "case-judge": ("generative", partial(build, "llama"), JUDGE),
}
KINDS: Final = ("minilm", "minilm-late", "case-pairs", "case-sparse", "case-judge")


@pytest.fixture(scope="module")
def client(stack: Stack) -> Client:
    registered(stack.client, "minilm", kind="bi-encoder", dtype="auto", is_default=True)
    registered(stack.client, "minilm-late", dtype="auto", is_default=True)
    for name, (kind, make, more) in TINY.items():
        folder = make(Path(stack.environment["MODEL_ROOTS"]) / name)
        registered(stack.client, name, kind=kind, source=str(folder), self_test="numbers", **more)
    return stack.client


def rows_of(client: Client, model: str, documents: Any, *, query: str = QUERY, **more: Any) -> list[dict[str, Any]]:
    """The results of /v1/rerank in the order of the documents."""
    response = client.post("/v1/rerank", json={"model": model, "query": query, "documents": documents, **more})
    assert response.status_code == 200, response.text
    return sorted(check(response, method="post")["results"], key=lambda row: row["index"])


def scores_of(client: Client, model: str, documents: Any, **more: Any) -> list[Any]:
    return [row["relevance_score"] for row in rows_of(client, model, documents, **more)]


# Every route: a body of one text or of several, and where in it they stand


def _many(*, name: str, query: str | None = None, **more: Any) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda texts: {**({query: QUERY} if query else {}), name: texts, **more}


ROUTES: Final[dict[str, tuple[str, Callable[[list[Any]], dict[str, Any]]]]] = {
    "/rerank": ("documents", _many(name="documents", query="query", model="minilm")),
    "/v1/rerank": ("documents", _many(name="documents", query="query", model="minilm")),
    "/v2/rerank": ("documents", _many(name="documents", query="query", model="minilm")),
    "/score": ("documents", _many(name="documents", query="queries", model="minilm")),
    "/v1/score": ("documents", _many(name="documents", query="queries", model="minilm")),
    "/generative_scoring": ("items", _many(name="items", query="query", model="case-judge")),
    "/v1/embeddings": ("input", _many(name="input", model="minilm")),
    "/v2/embed": ("texts", _many(name="texts", model="minilm", input_type="search_document")),
    "/pooling": ("input", _many(name="input", model="minilm")),
    "/embed": ("inputs", _many(name="inputs", model="minilm")),
    "/embed_all": ("inputs", _many(name="inputs", model="minilm-late")),
    "/embed_sparse": ("inputs", _many(name="inputs", model="case-sparse")),
}
CONTROL: Final = ["<|endoftext|>", "<|im_end|>", "[SEP]", "</s>", "[MASK]"]
every_route = pytest.mark.parametrize("path", ROUTES)


def refused(client: Client, path: str, body: Any, **more: Any) -> dict[str, Any]:
    response = client.post(path, **({"json": body} if isinstance(body, dict) else {"content": body}), **more)
    assert response.status_code == 422, response.text
    error: dict[str, Any] = check(response, method="post")["error"]
    return error


@every_route
def test_v3_an_empty_list_is_refused(client: Client, path: str) -> None:
    param, body = ROUTES[path]
    assert refused(client, path, body([]))["param"] == param


@pytest.mark.parametrize("model", KINDS)
def test_v3_an_empty_list_is_refused_by_every_kind(client: Client, model: str) -> None:
    assert refused(client, "/v1/rerank", {"model": model, "query": QUERY, "documents": []})["param"] == "documents"


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize("top_n", [0, -1, "3", 2.5])
def test_v4_a_top_n_that_cannot_be_is_refused(client: Client, path: str, top_n: Any) -> None:
    assert refused(client, path, {**ROUTES[path][1](TEXTS), "top_n": top_n})["param"] == "top_n"


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize(("top_n", "count"), [({"top_n": 3}, 3), ({"top_n": 10**9}, 3), ({"top_n": None}, 3), ({}, 3)])
def test_v4_a_top_n_beyond_the_list_is_all(client: Client, path: str, top_n: dict[str, Any], count: int) -> None:
    response = client.post(path, json={**ROUTES[path][1](TEXTS), **top_n})
    assert response.status_code == 200 and len(response.json()["results"]) == count


@every_route
def test_v7_a_misspelt_field_is_refused_and_the_valid_ones_are_named(client: Client, path: str) -> None:
    param, body = ROUTES[path]
    error = refused(client, path, {**body(TEXTS), "modle": "minilm"})
    assert error["param"] == "modle" and "model" in error["message"] and param in error["message"]


@every_route
def test_optional_fields_that_are_null_are_left_out(client: Client, path: str) -> None:
    """Cohere's connector for LangChain, for one, sends all fields that it knows."""
    body = ROUTES[path][1](TEXTS)
    nulls = {name: None for name in optional_fields(path, "post") if name not in body}
    assert len(nulls) > 2
    response = client.post(path, json={**nulls, **body})
    assert response.status_code == 200, response.text
    assert response.json() if path.startswith("/embed") else check(response, method="post")


def test_a_null_is_no_second_name_and_no_other_shape(client: Client) -> None:
    body = {"model": "minilm", "query": QUERY, "documents": TEXTS}
    assert client.post("/rerank", json={**body, "texts": None, "text_1": None}).json()["results"]
    pairs = {"model": "minilm", "queries": QUERY, "documents": TEXTS, "label_token_ids": None}
    assert "label_token_ids" in refused(client, "/v1/score", pairs)["message"]


@every_route
def test_t1_control_tokens_are_plain_text(client: Client, path: str) -> None:
    body = ROUTES[path][1](CONTROL)
    response = client.post(path, json={**body, **({"query": " ".join(CONTROL)} if "query" in body else {})})
    assert response.status_code == 200, response.text


@every_route
def test_t2_half_a_surrogate_pair_is_refused(client: Client, path: str) -> None:
    param, body = ROUTES[path]
    headers = {"Content-Type": "application/json"}
    error = refused(client, path, json.dumps(body(["fine", "a\ud83d"])).encode(), headers=headers)
    assert (error["code"], error["param"]) == ("lone_surrogate", f"{param}[1]")


@every_route
def test_t3_a_nul_is_refused(client: Client, path: str) -> None:
    param, body = ROUTES[path]
    error = refused(client, path, body(["fine", "a\0b"]))
    assert (error["code"], error["param"]) == ("nul_character", f"{param}[1]")


# Registration


def test_v8_two_labels_need_a_positive_class(client: Client, stack: Stack) -> None:
    folder = build_cross_encoder("bert", Path(stack.environment["MODEL_ROOTS"]) / "case-labels", labels=2)
    assert "positive_class" in rejection_of(client, "case-labels", kind="cross-encoder", source=str(folder))
    fields = {"positive_class": "LABEL_1", "kind": "cross-encoder", "source": str(folder), "self_test": "numbers"}
    registered(client, "case-labels-said", **fields)
    assert all(0 < score < 1 for score in scores_of(client, "case-labels-said", TEXTS))


def test_s5_an_embedding_checkpoint_is_no_reranker(client: Client) -> None:
    assert "classifier" in rejection_of(client, "case-embedder", kind="cross-encoder", source=MINILM)


def test_s6_a_causal_judge_is_no_cross_encoder(client: Client, stack: Stack) -> None:
    folder = str(Path(stack.environment["MODEL_ROOTS"]) / "case-judge")
    assert rejection_of(client, "case-mistaken", kind="cross-encoder", source=folder)


def rejection_of(client: Client, name: str, **fields: Any) -> str:
    """What registering the model under ``name`` says against it, at once or after its self-test."""
    response = client.post("/api/v1/models", json={"name": name, **fields})
    if response.status_code == 422:
        return str(response.json()["error"]["message"])
    assert response.status_code == 201, response.text
    path = f"/api/v1/models/{name}"
    wait_for(lambda: client.get(path).json()["state"] in ("available", "rejected"), seconds=120, what="the self-test")
    model = client.get(path).json()
    assert model["state"] == "rejected", model
    return json.dumps(model)


# Indices and lengths


def test_i3_every_score_belongs_to_its_own_document(client: Client) -> None:
    documents = [{"id": f"d{n}", "text": f"{TEXTS[n % 3]} {n}"} for n in range(100)]
    documents[10]["text"], documents[57]["text"] = "", " \n"
    rows = rows_of(client, "minilm", documents)
    assert [row["id"] for row in rows] == [f"d{n}" for n in range(100)]
    assert [row["index"] for row in rows if row["status"] == "empty"] == [10, 57]
    vectors = check(client.post("/v1/embeddings", json={"model": "minilm", "input": [QUERY]}), method="post")["data"]
    kept = [document["text"] for document in documents if document["text"].strip()]
    given = check(client.post("/v1/embeddings", json={"model": "minilm", "input": kept}), method="post")["data"]
    cosines = np.array([row["embedding"] for row in given]) @ np.array(vectors[0]["embedding"])
    found = [row["relevance_score"] for row in rows if row["status"] != "empty"]
    np.testing.assert_allclose(found, cosines, atol=NEAR)


@pytest.mark.parametrize("model", KINDS)
def test_l1_l5_a_huge_document_leaves_its_neighbours_alone(client: Client, model: str) -> None:
    short = [f"{text} {number}" for text in TEXTS for number in range(3)]
    alone = scores_of(client, model, short)
    for huge in ("honey " * 17_000, "0123456789abcdef" * 375):
        first, *beside = rows_of(client, model, [huge, *short])
        # WordPiece reads a word of thousands of letters as one unknown token.
        assert first["status"] == "truncated" or (first["status"] == "ok" and " " not in huge)
        assert (first["status"] == "truncated") == (first.get("truncated_tokens", 0) > 0)
        assert {row["status"] for row in beside} == {"ok"}
        np.testing.assert_allclose([row["relevance_score"] for row in beside], alone, atol=NEAR)


@pytest.mark.parametrize("model", KINDS)
def test_l2_one_text_alone_is_a_list_of_one(client: Client, model: str) -> None:
    long = "honey " * 3000
    assert rows_of(client, model, long) == rows_of(client, model, [long])


def test_l3_of_a_causal_rerankers_prompt_only_the_document_is_cut(client: Client) -> None:
    (row,) = rows_of(client, "case-judge", ["honey " * 3000])
    assert row["status"] == "truncated"
    body = {"model": "case-judge", "query": QUERY, "document": "honey " * 3000}
    (prompt,) = check(client.post("/tokenize", json=body), method="post")["rows"]
    text = check(client.post("/detokenize", json={"model": "case-judge", "tokens": prompt["tokens"]}), method="post")
    assert text["prompt"].startswith(QUERY) and text["prompt"].endswith("\nAnswer:")


def test_l4_the_answer_says_what_either_side_lost(client: Client) -> None:
    body = {"model": "case-pairs", "query": "honey " * 600, "documents": ["river " * 600]}
    answer = check(client.post("/v1/rerank", json=body), method="post")
    (lost,) = answer["assay"]["query_truncated_tokens"]
    assert lost > 500 and answer["results"][0]["truncated_tokens"] > 500


@pytest.mark.parametrize("model", ["case-pairs", "case-roberta"])
def test_l6_lengths_around_the_limit(client: Client, model: str) -> None:
    limit = check(client.get(f"/v1/models/{model}"))["max_model_len"]
    rows = rows_of(client, model, ["honey " * length for length in range(1, limit + 2)], query="bees")
    lost = [row.get("truncated_tokens", 0) for row in rows]
    assert lost[0] == 0 and lost[-1] > 0 and lost == sorted(lost)


# Scores


def test_s1_late_interaction_is_what_a_float64_reference_gives(client: Client) -> None:
    texts = ["machine learning", "Machines learn from data.", "The kettle boils."]
    vectors = []
    for text, role in zip(texts, ("query", "document", "document"), strict=True):
        body = {"model": "minilm-late", "task": "token_embed", "input": text, "input_type": role}
        (row,) = check(client.post("/pooling", json=body), method="post")["data"]
        vectors.append(np.array(row["data"], np.float64))
    expected = [(vectors[0] @ document.T).max(axis=1).sum() for document in vectors[1:]]
    rows = rows_of(client, "minilm-late", texts[1:], query=texts[0])
    np.testing.assert_allclose([row["raw_score"] for row in rows], expected, atol=NEAR * 10)
    assert all(row["raw_score"] <= len(vectors[0]) * (1 + 1e-6) for row in rows)


@pytest.mark.parametrize("model", KINDS)
def test_s2_s3_company_and_order_change_no_score(client: Client, model: str) -> None:
    texts = ["honey", "river " * 50, *(f"{TEXTS[n % 3]} {n}" for n in range(62))]
    together = scores_of(client, model, texts)
    order = np.random.default_rng(1).permutation(64)
    shuffled = scores_of(client, model, [texts[n] for n in order])
    np.testing.assert_allclose(shuffled, np.array(together)[order], atol=NEAR)
    for size in (1, 3, 6):
        np.testing.assert_allclose(scores_of(client, model, texts[:size]), together[:size], atol=NEAR)


def test_s4_a_causal_reranker_without_a_pad_token_scores(client: Client) -> None:
    scores = scores_of(client, "case-causal", [*TEXTS, "honey", "a much longer text than the others are " * 2])
    assert len(set(scores)) == 5 and None not in scores


def test_s7_close_documents_keep_their_order_in_bfloat16(client: Client) -> None:
    documents = [f"bees dry honey in the hive{end}" for end in ("", ".", "..", "!", " again", " yes")]
    body = {"model": "case-bfloat16", "query": "honey", "documents": documents}
    raw = [row["raw_score"] for row in check(client.post("/v1/rerank", json=body), method="post")["results"]]
    assert raw == sorted(raw, reverse=True) and len(set(raw)) == len(documents)


def test_s8_what_is_no_number_fails_alone(client: Client) -> None:
    texts = ["bees dry honey", "the river rose", "a passage is text"]
    for _ in range(2):  # and the worker lives on
        rows = rows_of(client, "case-not-finite", texts, query="bees")
        assert [row["status"] for row in rows] == ["ok", "failed", "ok"]
        assert (rows[1]["error"], rows[1]["relevance_score"]) == ("non_finite_score", None)


# Many at once


def test_c1_c4_many_at_once_under_one_request_id_get_their_own(client: Client) -> None:
    """Two hundred requests of mixed lengths from 16 threads."""

    def answer(number: int) -> tuple[list[float], int, str]:
        texts = [f"{TEXTS[n % 3]} {number} " * (1 + n % 7) for n in range(1 + number % 6)]
        body = {"model": "minilm", "queries": f"{QUERY} {number % 5}", "documents": texts}
        response = client.post("/v1/score", json=body, headers={"X-Request-Id": "one"})
        assert response.status_code == 200, response.text
        found = response.json()
        return [row["score"] for row in found["data"]], found["usage"]["prompt_tokens"], found["id"]

    alone = [answer(number) for number in range(40)]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(answer, [*range(40)] * 5))
    for number, (scores, tokens, _) in enumerate(together):
        expected, expected_tokens, _ = alone[number % 40]
        np.testing.assert_allclose(scores, expected, atol=NEAR)
        assert tokens == expected_tokens
    assert len({identity for _, _, identity in together}) == 200


def test_c2_usage_is_each_requests_own(client: Client) -> None:
    def tokens(count: int) -> int:
        body = {"model": "case-pairs", "queries": QUERY, "documents": [f"{TEXTS[n % 3]} {n}" for n in range(count)]}
        response = client.post("/v1/score", json=body)
        assert response.status_code == 200, response.text
        return int(check(response, method="post")["usage"]["prompt_tokens"])

    with ThreadPoolExecutor(2) as threads:
        few, many = threads.map(tokens, (1, 1000))
    assert (few, many > 1000 * 5) == (tokens(1), True)
