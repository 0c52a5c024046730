"""An administrator takes a running worker from work and puts it back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rig import wait_for
from tests.integration.running import checked, registered
from tests.integration.test_running_platform import rerank
from tests.stack import Stack

pytestmark = pytest.mark.stack


def test_a_drained_worker_goes_on_reporting_and_comes_back(stack: Stack) -> None:
    name = registered(stack.client, "late-drained")
    assert rerank(stack.client, name).is_success
    (worker,) = checked(stack.client.get("/api/v1/workers", params={"state": "ready"}))["results"]
    path = f"/api/v1/workers/{worker['id']}"
    answer = checked(stack.client.post(f"{path}/drain", json={"reason": "to be moved"}))
    assert (answer["state"], answer["hold"], answer["hold_reason"]) == ("draining", "drain", "to be moved")

    def shown() -> dict[str, Any]:
        return checked(stack.client.get(path))

    wait_for(lambda: shown()["state"] == "drained", seconds=60, what="the drain")
    drained = shown()
    assert {row["state"] for row in drained["placements"]} == {"unloaded"}
    assert sum(row["memory"]["claimed_bytes"] for row in drained["placements"]) == 0
    wait_for(lambda: shown()["heartbeat_at"] > drained["heartbeat_at"], what="a heartbeat")
    refused = rerank(stack.client, name)
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "no_worker"
    assert stack.client.post(f"{path}/release", json={"reason": "x"}).status_code == 409
    assert stack.client.post(f"{path}/resume", json={}).status_code == 422
    assert checked(stack.client.post(f"{path}/resume", json={"reason": "moved"}))["state"] == "ready"
    wait_for(lambda: rerank(stack.client, name).is_success, seconds=60, what="an answer")
