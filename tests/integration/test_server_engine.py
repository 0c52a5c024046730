"""Clients that hang up at any moment of a request's way through a real engine."""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.rig import wait_for
from tests.integration.running import registered, text
from tests.stack import Stack

pytestmark = pytest.mark.stack

TIMES = 100
RESERVED = ("assay_engine_reserved_bytes", "assay_engine_reservations", "assay_engine_requests_in_flight")


def test_hanging_up_between_query_and_documents_leaves_nothing_reserved(stack: Stack) -> None:
    model = registered(stack.client, "late-hung-up")
    choose = random.Random(0)

    def hang_up(number: int) -> None:
        documents = [text(number * 8 + n, 60) + f" {number} {n}" for n in range(8)]
        body = {"model": model, "query": f"query {number}", "documents": documents}
        heads, patience = stack.client.headers, choose.uniform(0.02, 0.3)
        with contextlib.suppress(httpx.TimeoutException):  # which closes the connection
            httpx.post(f"{stack.base_url}/rerank", json=body, headers=heads, timeout=patience)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hang_up, range(TIMES)))
    wait_for(lambda: metric(stack, 'assay_http_in_flight{lane="waiting"}') == 0, what="the end of all requests")
    assert metric(stack, 'assay_http_disconnects_total{lane="waiting"}') > 0
    # What the worker reports comes with its heartbeat.
    wait_for(lambda: all(engine(stack, name) == 0 for name in RESERVED), what="an engine that holds nothing")
    answer = stack.client.post("/rerank", json={"model": model, "query": "honey", "documents": ["bees", "a bridge"]})
    assert answer.status_code == 200


def metric(stack: Stack, start: str) -> float:
    lines = httpx.get(f"{stack.base_url}/metrics", timeout=30).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def engine(stack: Stack, name: str) -> float:
    """Of all workers; the series must be there."""
    lines = httpx.get(f"{stack.base_url}/metrics", timeout=30).text.splitlines()
    found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{")]
    assert found, name
    return sum(found)
