"""What a batch job in the background does to interactive requests of 10 documents."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from house import House
from load import Target, load, summary
from texts import Texts

DOCUMENTS: Final = 10
HEARTBEATS: Final = 6


def background(house: House, model: Path, texts: Texts, *, seconds: float, rounds: int) -> dict[str, Any]:
    """``more_ms``: the difference of the medians; ``step_ms``: a micro-batch of the job while it runs alone. ``model``:
    the folder of a cross-encoder, which keeps nothing of a pair from one request to the next."""
    house.model("pairs-of-job", kind="cross-encoder", source=str(model), self_test="numbers")
    request = texts.asking(Target(house.url, "/rerank", house.token), "pairs-of-job", DOCUMENTS)
    load(house.url, request, clients=1, seconds=1)
    alone = [load(house.url, request, clients=1, seconds=seconds) for _ in range(rounds)]
    job = _started(house, texts)
    step = _step_ms(house)
    beside = [load(house.url, request, clients=1, seconds=seconds) for _ in range(rounds)]
    state = house.client.get(f"/api/v1/jobs/{job}").json()["state"]
    house.client.post(f"/api/v1/jobs/{job}/cancel", json={})
    found: dict[str, Any] = {"alone": summary(alone), "beside_job": summary(beside), "job": state}
    found["step_ms"] = step
    found["more_ms"] = round(found["beside_job"]["p50_ms"] - found["alone"]["p50_ms"], 2)
    print(f"background, {DOCUMENTS} documents: {found}", flush=True)
    return {"background": found}


def _started(house: House, texts: Texts) -> str:
    """A job of every query with every document, long enough to last; its id once it runs."""
    sets = {}
    for kind, rows in (("document", texts.documents), ("query", texts.queries)):
        lines = "\n".join(json.dumps({"id": str(n), "text": f"{text} ({n})"}) for n, text in enumerate(rows))
        path = f"{kind}-sets"
        made = house.client.post(
            f"/api/v1/{path}", files={"file": (f"{kind}.jsonl", lines.encode())}, data={"name": kind}
        )
        if made.is_error:
            raise SystemExit(f"The {kind} set was refused: {made.status_code} {made.text[:500]}")
        sets[f"{kind}_set"] = made.json()["id"]
        house.until(f"{path}/{made.json()['id']}", lambda found: found["state"] == "ready")
    job = house.posted("jobs", {"name": "background", "model": "pairs-of-job", **sets})["id"]
    house.until(f"jobs/{job}", lambda found: found["state"] == "running")
    return str(job)


def _step_ms(house: House) -> float:
    """From the statistics that the worker's heartbeats bring."""
    seen: list[tuple[float, int]] = []
    give_up = time.monotonic() + HEARTBEATS * 60
    while len(seen) < HEARTBEATS and time.monotonic() < give_up:
        (worker,) = house.client.get("/api/v1/workers").json()["results"]
        batches = worker["statistics"]["engine"]["micro_batches"]
        if not seen or batches != seen[-1][1]:
            seen.append((time.monotonic(), batches))
        time.sleep(0.05)
    (began, first), (ended, last) = seen[1], seen[-1]  # the job may have started between two heartbeats
    return round(1000 * (ended - began) / (last - first), 2)
