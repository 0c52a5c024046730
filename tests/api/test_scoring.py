"""Scoring end to end: HTTP, queue, worker, real models. Case numbers are those of the project's list of faults."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.api.schema import check
from tests.stack import Stack

pytestmark = pytest.mark.stack
ENCODERS = ("minilm", "minilm-late")
MODELS = (*ENCODERS, "smollm2-judge")
QUERY = "how do I remove limescale from a kettle?"
TEXTS = [
    "Bread dough rises faster in a warm kitchen.",
    "Pull a tick out slowly with fine tweezers, close to the skin.",
    "Water your cactus once a month in winter.",
    "The tripped switch stands half-way: push it down and then up.",
    "Descale a kettle with citric acid or vinegar, then rinse it twice.",
]
SAME = 2e-6  # float32: neighbours in a batch may change the last bits
Client = httpx.Client


@pytest.fixture(scope="session")
def client(stack: Stack) -> Client:
    """The stack's client, once its models have passed their self-tests."""
    stack.manage("register_bundled_models")
    return stack.client


def rerank(client: Client, documents: Any, *, model: str = "minilm", query: str = QUERY, **more: Any) -> dict[str, Any]:
    response = client.post("/v1/rerank", json={"model": model, "query": query, "documents": documents, **more})
    assert response.status_code == 200, response.text
    return check(response, method="post")


def by_index(body: dict[str, Any]) -> list[Any]:
    """Scores in the order submitted."""
    return [row["relevance_score"] for row in sorted(body["results"], key=lambda row: row["index"])]


def score_alone(client: Client, text: str, model: str) -> float:
    (row,) = rerank(client, [text], model=model)["results"]
    return float(row["relevance_score"])


def test_the_answer_has_everything_a_client_needs(client: Client) -> None:
    body = {"model": "minilm", "query": QUERY, "documents": TEXTS}
    response = client.post("/rerank", json=body, headers={"X-Request-Id": "checkout-17"})
    answer = check(response, method="post")
    assert answer["results"][0]["index"] == 4 and len(answer["results"]) == 5
    scores = [row["raw_score"] for row in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 20
    assert (
        answer["assay"]["scale"] == "cosine" and answer["assay"]["dtype"] == "float32" and answer["assay"]["revision"]
    )
    assert response.headers["X-Request-Id"] == "checkout-17"
    timing = dict(part.split(";dur=") for part in response.headers["Server-Timing"].split(", "))
    assert list(timing) == ["queue", "tokenise", "forward", "maxsim", "total"] and float(timing["total"]) > 0
    stored = check(client.get(f"/api/v1/score-requests/{answer['id']}"))
    assert (stored["endpoint"], stored["status_code"], stored["request_id"]) == ("/rerank", 200, "checkout-17")
    assert stored["token"] == "tests" and stored["document_count"] == 5
    ranked = sorted(answer["results"], key=lambda row: row["index"])
    assert [row["score"] for row in stored["results"]] == [row["relevance_score"] for row in ranked]


def test_without_a_model_the_default_answers(client: Client) -> None:
    body = check(client.post("/rerank", json={"query": QUERY, "documents": TEXTS}), method="post")
    assert body["model"] == "minilm-late" and body["results"][0]["index"] == 4
    assert check(client.get("/v1/models/minilm-late"))["state"] == "ready on 1"


@pytest.mark.parametrize("model", MODELS)
def test_v1_blank_documents_are_kept_without_a_score(client: Client, model: str) -> None:
    body = rerank(client, ["", "   ", "\n\t"], model=model)
    assert [(row["index"], row["relevance_score"], row["status"]) for row in body["results"]] == [
        (index, None, "empty") for index in range(3)
    ]
    assert [row["document"]["text"] for row in body["results"]] == ["", "   ", "\n\t"]


@pytest.mark.parametrize("model", MODELS)
def test_v2_an_empty_document_leaves_the_others_as_they_are(client: Client, model: str) -> None:
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS + TEXTS[:4])]
    alone, beside = by_index(rerank(client, texts, model=model)), rerank(client, ["", *texts], model=model)
    assert beside["results"][-1]["index"] == 0 and beside["results"][-1]["status"] == "empty"
    assert by_index(beside) == [None, *(pytest.approx(score, abs=SAME * 10) for score in alone)]


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (5, 5), (6, 5), (10**9, 5), (None, 5)])
def test_v4_top_n_cuts_and_never_lengthens(client: Client, top_n: int | None, count: int) -> None:
    full = rerank(client, TEXTS)["results"]
    assert rerank(client, TEXTS, top_n=top_n)["results"] == full[:count]
    assert rerank(client, TEXTS, top_k=top_n)["results"] == full[:count]


@pytest.mark.parametrize("model", MODELS)
def test_v5_documents_are_echoed_byte_for_byte_or_not_at_all(client: Client, model: str) -> None:
    texts = ["  two blanks\u00a0before ", "e\u0301 is not \u00e9", "line\r\nbreak\u2028here", "👩🏽‍🚒 \ufeff\u200b"]
    body = rerank(client, texts, model=model)
    assert {row["index"]: row["document"] for row in body["results"]} == {
        index: {"text": text} for index, text in enumerate(texts)
    }
    assert all("document" not in row for row in rerank(client, texts, model=model, return_documents=False)["results"])


def test_v6_ranked_fields_become_text(client: Client) -> None:
    documents: list[Any] = [
        {"body": 7},
        {"body": None},
        {"title": "no body"},
        {"body": ""},
        {"body": TEXTS[4], "id": "d5"},
    ]
    body = rerank(client, documents, rank_fields=["body"])
    rows = {row["index"]: row for row in body["results"]}
    assert [rows[index]["status"] for index in range(5)] == ["ok", "empty", "empty", "empty", "ok"]
    assert rows[0]["relevance_score"] == pytest.approx(score_alone(client, "7", "minilm"), abs=SAME)
    assert rows[4]["id"] == "d5" and rows[4]["document"] == {"text": TEXTS[4], "body": TEXTS[4], "id": "d5"}
    joined = rerank(client, [{"title": "Kettles", "body": TEXTS[4]}], rank_fields=["title", "body"])["results"][0]
    same = score_alone(client, f"title: Kettles\nbody: {TEXTS[4]}", "minilm")
    assert joined["relevance_score"] == pytest.approx(same, abs=SAME)


@pytest.mark.parametrize("name", ["texts", "items", "data_2", "text_2"])
def test_v7_aliases_mean_the_same(client: Client, name: str) -> None:
    response = client.post("/rerank", json={"model": "minilm", "query": QUERY, name: TEXTS})
    assert check(response, method="post")["results"] == rerank(client, TEXTS)["results"]


def test_l2_one_text_alone_is_a_list_of_one(client: Client) -> None:
    long = "limescale " * 3000
    one, listed = rerank(client, long)["results"], rerank(client, [long])["results"]
    assert one == listed and one[0]["status"] == "truncated" and one[0]["truncated_tokens"] > 2000
    assert one[0]["document"]["text"] == long


def test_too_long_may_be_an_error_that_names_the_items(client: Client) -> None:
    body = {"model": "minilm", "query": QUERY, "documents": ["short", "limescale " * 3000], "truncation": "error"}
    response = client.post("/rerank", json=body)
    error = check(response, method="post")["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "too_long", "documents")
    assert "1" in error["message"]


def test_limits_per_document_and_query_are_kept(client: Client) -> None:
    row = rerank(client, TEXTS, max_tokens_per_doc=6)["results"][0]
    assert row["status"] == "truncated" and row["truncated_tokens"] > 0
    body = rerank(client, TEXTS, max_tokens_per_query=6)
    assert body["assay"]["query_truncated_tokens"][0] > 0
    assert (
        rerank(client, TEXTS, max_tokens_per_doc=0, truncate_prompt_tokens=-1)["results"]
        == rerank(client, TEXTS)["results"]
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_limit_of_a_pair_is_kept_on_every_route(client: Client, model: str) -> None:
    long = [{"text": "limescale " * 400}]
    limit = 128 if model != "smollm2-judge" else 600  # its template shows two examples
    for path, side in (("/rerank", "documents"), ("/score", "documents"), ("/generative_scoring", "items")):
        if path == "/generative_scoring" and model != "smollm2-judge":
            continue
        query = {"queries": QUERY} if path == "/score" else {"query": QUERY}
        body = {"model": model, **query, side: long, "truncate_prompt_tokens": limit}
        row = next(
            iter(check(client.post(path, json=body), method="post").get("results" if path == "/rerank" else "data"))
        )
        assert row["status"] == "truncated" and row["truncated_tokens"] > 60, (path, row)


@pytest.mark.parametrize("model", MODELS)
def test_i2_duplicates_have_equal_scores_and_their_own_indices(client: Client, model: str) -> None:
    documents = [{"id": "x", "text": TEXTS[4]}, {"id": "x", "text": TEXTS[4]}, {"id": "y", "text": TEXTS[0]}]
    rows = sorted(rerank(client, documents, model=model)["results"], key=lambda row: row["index"])
    assert [(row["index"], row["id"]) for row in rows] == [(0, "x"), (1, "x"), (2, "y")]
    assert rows[0]["relevance_score"] == pytest.approx(rows[1]["relevance_score"], abs=SAME * 10)
    assert rows[0]["relevance_score"] != rows[2]["relevance_score"]


@pytest.mark.parametrize(("model", "tolerance"), [("minilm", 0.1), ("minilm-late", 2.0), ("smollm2-judge", 0.2)])
def test_t1_control_tokens_in_texts_are_text(client: Client, model: str, tolerance: float) -> None:
    tokens = ["<|endoftext|>", "<|im_end|>", "[SEP]", "</s>", "[MASK]"]
    body = rerank(client, [TEXTS[4], *(f"{TEXTS[4]} {token}" for token in tokens), *tokens], model=model)
    assert all(row["status"] == "ok" for row in body["results"])
    clean, *marked = by_index(body)[:6]
    assert marked == pytest.approx([clean] * 5, abs=tolerance)
    assert rerank(client, TEXTS, model=model, query=" ".join(tokens))["results"][0]["status"] == "ok"


def test_scores_keep_the_order_of_the_request(client: Client) -> None:
    def scores(**body: Any) -> list[Any]:
        return check(client.post("/v1/score", json={"model": "minilm", **body}), method="post")["data"]

    one_to_many = scores(queries=QUERY, documents=TEXTS)
    assert [row["index"] for row in one_to_many] == list(range(5))
    assert [row["score"] for row in one_to_many] == pytest.approx(by_index(rerank(client, TEXTS)), abs=SAME)
    pairs = scores(text_1=[QUERY, "baking"], text_2=[TEXTS[4], TEXTS[0]])
    matrix = scores(data_1=[QUERY, "baking"], data_2=[TEXTS[4], TEXTS[0]], mode="matrix")
    assert [(row["query_index"], row["document_index"]) for row in matrix] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["score"] for row in pairs] == pytest.approx([matrix[0]["score"], matrix[3]["score"]], abs=SAME)
    assert pairs[0]["score"] > matrix[1]["score"] and pairs[1]["score"] > matrix[2]["score"]
    (single,) = scores(queries=[QUERY], documents=TEXTS[4])
    assert single["score"] == pytest.approx(one_to_many[4]["score"], abs=SAME)


def test_labels_are_all_answered(client: Client) -> None:
    body = {
        "query": "What is the capital of France?",
        "items": ["Paris is the capital of France.", {"text": "", "id": 7}],
    }
    answer = check(client.post("/generative_scoring", json=body), method="post")
    first, second = answer["data"]
    assert answer["model"] == "smollm2-judge" and answer["assay"]["scale"] == "probability"
    assert [label["label"] for label in first["labels"]] == ["yes", "no"]
    assert sum(label["probability"] for label in first["labels"]) == pytest.approx(1, abs=1e-5)
    assert first["score"] == first["labels"][0]["probability"]
    assert (second["id"], second["status"], second["score"]) == (7, "empty", None)
    ids = [label["token_ids"][0] for label in first["labels"]]
    same = client.post("/generative_scoring", json={**body, "label_token_ids": ids})
    assert check(same, method="post")["data"][0]["score"] == pytest.approx(first["score"], abs=1e-5)
    whole = client.post("/generative_scoring", json={**body, "apply_softmax": False})
    assert check(whole, method="post")["data"][0]["score"] < first["score"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template": "{{ query }} without the other"}, "template"),
        ({"template": "{{ query.__class__ }} {{ item }}"}, "template"),
        ({"template": "{% for x in y %}"}, "template"),
        ({"label_token_ids": [1, 10**9]}, "label_token_ids"),
    ],
)
def test_what_the_model_cannot_do_is_the_clients_error(client: Client, fields: dict[str, Any], param: str) -> None:
    response = client.post("/generative_scoring", json={"query": "q", "items": ["a"], **fields})
    assert response.status_code == 422, response.text
    assert check(response, method="post")["error"]["param"] == param


def test_a_deadline_that_cannot_be_kept_is_said(client: Client) -> None:
    documents = [f"{text} {number} " * 30 for number in range(40) for text in TEXTS]
    body = {"model": "minilm", "query": QUERY, "documents": documents}
    started = time.monotonic()
    response = client.post("/rerank", json=body, headers={"X-Timeout-Ms": "150"})
    assert response.status_code == 504 and time.monotonic() - started < 3
    assert check(response, method="post")["error"]["code"] == "deadline_exceeded"
    assert len(rerank(client, TEXTS)["results"]) == 5


def run_job(client: Client, model: str, documents: list[str]) -> dict[str, Any]:
    """Upload, submit, wait: the ended job."""
    stamp = str(time.time_ns())
    files = {
        "document-sets": "id,text\n" + "".join(f'd{i},"{text}"\n' for i, text in enumerate(documents)),
        "query-sets": f"id,text\nq1,{QUERY}\nq-{stamp},{stamp}\n",
    }
    sets = {}
    for resource, content in files.items():
        fields = {"name": model, "use_existing": "true"}
        uploaded = client.post(f"/api/v1/{resource}", files={"file": ("file.csv", content.encode())}, data=fields)
        sets[resource] = check(uploaded, method="post")["id"]
    body = {"model": model, "document_set": sets["document-sets"], "query_set": sets["query-sets"]}
    job = check(client.post("/api/v1/jobs", json=body), method="post")
    end = time.monotonic() + 90
    while not job["finished_at"] and time.monotonic() < end:
        time.sleep(0.2)
        job = check(client.get(f"/api/v1/jobs/{job['id']}"))
    return job


@pytest.mark.parametrize("model", MODELS)
def test_i1_a_score_is_the_same_at_once_in_a_job_and_in_its_exports(client: Client, model: str) -> None:
    """Five documents, the most relevant last; in the job an empty one follows."""
    job = run_job(client, model, [*TEXTS, ""])
    assert job["state"] == "completed", job
    assert job["statistics"]["pairs"]["empty"] == 2 and job["progress"]["percent"] == 100
    single = [score_alone(client, text, model) for text in TEXTS]
    (result,) = check(client.get(f"/api/v1/jobs/{job['id']}/results", params={"query_id": "q1", "texts": True}))[
        "results"
    ]
    rows = {row["document_id"]: row for row in result["documents"]}
    if model in ENCODERS:
        assert result["documents"][0]["document_id"] == "d4"
    assert [rows[f"d{index}"]["score"] for index in range(5)] == pytest.approx(single, abs=1e-5)
    assert result["documents"][-1]["document_id"] == "d5" and rows["d5"]["status"] == "empty"
    ranked = [(row["document_id"], row["score"], row["raw_score"]) for row in result["documents"][:5]]
    text = {
        name: client.get(f"/api/v1/jobs/{job['id']}/export", params={"format": name}).text for name in ("csv", "trec")
    }
    csv_rows = [line.split(",") for line in text["csv"].splitlines()[1:6]]
    assert [(row[3].strip('"'), float(row[5]), float(row[6])) for row in csv_rows] == ranked
    run = [line.split() for line in text["trec"].splitlines()[:5]]
    assert [row[2] for row in run] == [name for name, _, _ in ranked]
    assert [float(row[4]) for row in run] == pytest.approx([raw for _, _, raw in ranked], rel=1e-6)


def test_a_deadline_shorter_than_any_acknowledgement_is_a_deadline(client: Client) -> None:
    body = {"model": "minilm", "query": QUERY, "documents": TEXTS}
    response = client.post("/rerank", json=body, headers={"X-Timeout-Ms": "1"})
    assert response.status_code == 504 and response.json()["error"]["code"] == "deadline_exceeded"
