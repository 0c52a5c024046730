"""Requests from files, driven by OpenAI's own client against the running platform."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.integration.rig import wait_for
from tests.integration.running import registered
from tests.stack import Stack

pytestmark = pytest.mark.stack
ENDED = ("completed", "failed", "expired", "cancelled")
TEXTS = ["Bread dough rises faster in a warm kitchen.", "Descale a kettle with citric acid."]


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    registered(stack.client, "batched")
    registered(stack.client, "vectors", kind="bi-encoder")
    secret = stack.client.headers["Authorization"].removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{stack.base_url}/v1", api_key=secret, max_retries=0) as client:
        yield client


def requests(url: str, bodies: list[dict[str, Any]]) -> bytes:
    lines = [
        {"custom_id": f"line {number}", "method": "POST", "url": url, "body": body}
        for number, body in enumerate(bodies)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def started(client: openai.OpenAI, endpoint: Any, content: bytes, **more: Any) -> Any:
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    assert (file.bytes, file.purpose, file.status) == (len(content), "batch", "processed")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)
    assert batch.status == "validating"
    return batch


def ended(client: openai.OpenAI, batch: Any) -> Any:
    wait_for(lambda: client.batches.retrieve(batch.id).status in ENDED, seconds=120, what=f"the end of {batch.id}")
    return client.batches.retrieve(batch.id)


def lines_of(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    lines = [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
    return {line["custom_id"]: line for line in lines}


def test_each_line_is_answered_as_its_endpoint_would_answer_it(client: openai.OpenAI, stack: Stack) -> None:
    bodies: list[dict[str, Any]] = [
        {"model": "batched", "query": "kettle", "documents": TEXTS, "top_n": 1},
        {"model": "batched", "query": "kettle", "documents": [], "top_n": 1},
        {"model": "nobody", "query": "kettle", "documents": TEXTS},
        {"model": "batched", "query": "bread", "documents": TEXTS, "return_documents": False},
    ]
    batch = ended(client, started(client, "/v1/rerank", requests("/v1/rerank", bodies), metadata={"run": "nightly"}))
    assert (batch.status, batch.metadata) == ("completed", {"run": "nightly"})
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 2, 2)
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at
    answers = lines_of(client, batch.output_file_id)
    assert list(answers) == ["line 0", "line 3"]
    for name, line in answers.items():
        at_once = stack.client.post("/v1/rerank", json=bodies[int(name.split()[1])]).json()
        assert line["error"] is None and line["response"]["status_code"] == 200
        assert line["response"]["body"]["results"] == at_once["results"]
    refusals = lines_of(client, batch.error_file_id)
    assert {name: line["response"]["status_code"] for name, line in refusals.items()} == {"line 1": 422, "line 2": 404}
    assert "nobody" in refusals["line 2"]["error"]["message"]


def test_embeddings_come_in_batches_too(client: openai.OpenAI) -> None:
    body = {"model": "vectors", "input": TEXTS[0]}
    batch = ended(client, started(client, "/v1/embeddings", requests("/v1/embeddings", [body])))
    assert batch.status == "completed" and batch.error_file_id is None
    found = lines_of(client, batch.output_file_id)["line 0"]["response"]["body"]["data"][0]["embedding"]
    assert found == client.embeddings.create(model="vectors", input=TEXTS[0], encoding_format="float").data[0].embedding


def test_a_file_with_bad_lines_fails_and_says_which(client: openai.OpenAI) -> None:
    good = requests("/v1/rerank", [{"query": "a", "documents": ["b"]}])
    content = good + b"no json\n" + good + good.replace(b"line 0", b"x").replace(b"/v1/rerank", b"/v1/score")
    batch = ended(client, started(client, "/v1/rerank", content))
    assert batch.status == "failed" and batch.failed_at is not None
    assert [(problem.line, problem.code) for problem in batch.errors.data] == [
        (2, "invalid_json_line"),
        (3, "duplicate_custom_id"),
        (4, "mismatched_url"),
    ]


def test_a_batch_is_cancelled_and_keeps_what_was_answered(client: openai.OpenAI) -> None:
    bodies = [{"model": "batched", "query": f"kettle {n}", "documents": TEXTS * 20} for n in range(400)]
    batch = started(client, "/v1/rerank", requests("/v1/rerank", bodies))

    def answered() -> bool:
        counts = client.batches.retrieve(batch.id).request_counts
        return counts is not None and counts.completed > 0

    wait_for(answered, seconds=120, what="the first answer")
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert batch.status == "cancelled" and 0 < batch.request_counts.completed < 400
    assert len(lines_of(client, batch.output_file_id)) == batch.request_counts.completed
    assert len(lines_of(client, batch.error_file_id)) == 400 - batch.request_counts.completed


def test_files_and_batches_are_listed_page_by_page_and_deleted(client: openai.OpenAI) -> None:
    files = [client.files.create(file=(f"{n}.jsonl", b"{}\n"), purpose="batch") for n in range(3)]
    listed = [file.id for file in client.files.list(limit=2, purpose="batch")]  # the client follows the pages
    assert listed[:3] == [file.id for file in reversed(files)] and len(listed) == len(set(listed))
    assert client.files.delete(files[0].id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(files[0].id)
    assert len({batch.id for batch in client.batches.list(limit=1)}) >= 3
    with pytest.raises(openai.UnprocessableEntityError, match="24h"):
        client.batches.create(input_file_id=files[1].id, endpoint="/v1/rerank", completion_window="48h")  # type: ignore[arg-type]
