"""The test stack itself, and with it the supervisor: workers come, die and come back."""

from __future__ import annotations

import signal

import httpx
import psycopg
import pytest

from tests.integration.rig import wait_for
from tests.stack import Stack

pytestmark = pytest.mark.stack


def worker_pid(stack: Stack, name: str) -> int | None:
    """The process id that the worker's own row gives, while it is ready."""
    with psycopg.connect(stack.database_url) as connection:
        row = connection.execute(
            "SELECT pid FROM scoring_worker WHERE name = %s AND state = 'ready'", [name]
        ).fetchone()
    return int(row[0]) if row else None


def test_the_parts_are_up_and_doctor_agrees(stack: Stack) -> None:
    wait_for(lambda: worker_pid(stack, "worker-1") is not None, seconds=180, what="the worker")
    assert stack.client.get("/readyz").json()["status"] == "ok"
    report = stack.manage("doctor")
    assert "PostgreSQL 18" in report and "1 ready" in report and "noeviction" in report


def test_a_killed_worker_comes_back_under_its_name(stack: Stack) -> None:
    wait_for(lambda: worker_pid(stack, "worker-1") is not None, seconds=180, what="the worker")
    first = worker_pid(stack, "worker-1")
    assert stack.kill_worker(signal.SIGKILL, restart=True) == "worker-1"
    wait_for(lambda: worker_pid(stack, "worker-1") not in (None, first), seconds=180, what="the worker's return")


def test_a_second_worker_can_join_and_leave(stack: Stack) -> None:
    name = stack.start_worker()
    assert name == "worker-2"
    wait_for(lambda: worker_pid(stack, name) is not None, seconds=180, what="the second worker")
    stack.kill_worker(signal.SIGTERM, name=name)
    assert stack.workers == ["worker-1"]
    wait_for(lambda: worker_pid(stack, name) is None, seconds=180, what="its end")


def test_a_body_without_a_length_is_refused_not_taken_for_an_empty_one(stack: Stack) -> None:
    answer = stack.client.post("/rerank", content=iter([b"{}"]), headers={"Content-Type": "application/json"})
    assert answer.status_code == 411
    assert answer.json()["error"]["code"] == "length_required"


def test_the_web_process_stays_light(stack: Stack) -> None:
    assert stack.client.get("/livez").is_success
    memory = stack.memory_bytes("web")
    assert 0 < memory < 300 << 20, f"{memory / 1e6:.0f} MB"


def test_a_refused_request_leaves_its_connection_usable(stack: Stack) -> None:
    with httpx.Client(base_url=stack.base_url) as client:
        for _ in range(30):
            assert client.post("/rerank", json={"query": "a", "documents": ["b" * 2000]}).status_code == 401
            assert client.post("/rerank", content=b"x" * 3000, headers={"Content-Type": "text/xml"}).status_code == 401
            assert client.get("/livez").is_success
