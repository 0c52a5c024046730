"""One id leads from the client's request to the worker's line about it, and from a job to its chunks."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.integration.rig import wait_for
from tests.integration.running import checked, finished, registered, submitted
from tests.stack import Stack

pytestmark = pytest.mark.stack


def lines(stack: Stack, program: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stack.log(program).splitlines() if line.startswith("{")]


def events(stack: Stack, program: str, **fields: Any) -> list[str]:
    found = [line for line in lines(stack, program) if fields.items() <= line.items()]
    return [line["event"] for line in found]


def test_a_request_id_runs_from_the_client_to_the_worker(stack: Stack) -> None:
    model = registered(stack.client, "late-traced")
    body = {"model": model, "query": "honey", "documents": ["bees make honey"]}
    trace = f"trace-{uuid.uuid4()}"
    answer = stack.client.post("/rerank", json=body, headers={"X-Request-Id": trace})
    assert checked(answer) and answer.headers["X-Request-Id"] == trace
    (worker,) = stack.workers
    wait_for(lambda: events(stack, worker, request_id=trace), what="the worker's line")
    assert events(stack, worker, request_id=trace, model=model) == ["synchronous request: fallback"]
    (line,) = events(stack, "web", request_id=trace)
    assert line.startswith("POST ") and ": 200 in " in line
    assert "honey" not in stack.log("web") + stack.log(worker), "texts never reach a log"


def test_a_job_s_chunks_carry_its_id_which_the_submitting_request_names(stack: Stack) -> None:
    job = submitted(stack.client, registered(stack.client, "late-traced"), chunks=2)
    assert finished(stack.client, job)["state"] == "completed"
    (worker,) = stack.workers
    for chunk in range(2):
        (line,) = events(stack, worker, job=job["id"], chunk=chunk)
        assert line.startswith("chunk: done")
    wait_for(
        lambda: f"job.submitted scoring.job {job['id']}" in events(stack, "web"), what="the line of the submission"
    )
    (submission,) = [line for line in lines(stack, "web") if line["event"].endswith(job["id"])]
    assert events(stack, "web", request_id=submission["request_id"])[-1].startswith("POST ")


def test_the_web_server_s_own_lines_are_json_too(stack: Stack) -> None:
    assert stack.client.get("/livez").is_success
    log = stack.log("web").splitlines()
    started = max(number for number, line in enumerate(log) if "Starting granian" in line)
    assert [line for line in log[started:] if not line.startswith("{")] == []
