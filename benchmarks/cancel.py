"""How long a cancel takes: python benchmarks/cancel.py URL TOKEN [MODEL]

Seconds from the request until no worker holds a chunk of the job any more, and until the job is cancelled; by default
with the bundled generative model, the slowest there is. TOKEN needs the scope jobs.
"""

from __future__ import annotations

import platform
import random
import statistics
import sys
import time

import httpx
from cranfield_job import ok, wait

ROUNDS = 6
WORDS = ("wing", "heat", "flow", "plate", "shock", "rain", "bees", "honey", "river", "bridge", "engine", "violin")


def texts(count: int, words: int) -> str:
    return "id,text\n" + "".join(f"{n},{' '.join(random.choices(WORDS, k=words))}\n" for n in range(count))


def cancelled(client: httpx.Client, model: str) -> tuple[float, float]:
    sets = {}
    for kind, content in (("document_set", texts(400, 80)), ("query_set", texts(4, 6))):
        files = {"file": (f"{kind}.csv", content.encode())}
        sets[kind] = ok(client.post(f"/api/v1/{kind.replace('_', '-')}s", files=files, data={"name": kind}))["id"]
    path = f"/api/v1/jobs/{ok(client.post('/api/v1/jobs', json={'model': model, **sets}))['id']}"
    wait(client, path, ("running",))
    time.sleep(random.uniform(2, 4))  # anywhere in a micro-batch
    started, free = time.perf_counter(), 0.0
    row = ok(client.post(f"{path}/cancel"))
    while row["state"] != "cancelled":
        row = ok(client.get(path))
        if not free and not row["progress"]["chunks"]["leased"]:
            free = time.perf_counter() - started
    return free, time.perf_counter() - started


if __name__ == "__main__":
    url, token, *rest = sys.argv[1:]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        rounds = [cancelled(client, rest[0] if rest else "smollm2-judge") for _ in range(ROUNDS)]
    print(f"{platform.machine()}, {ROUNDS} jobs cancelled")
    for what, seconds in zip(("no chunk in hand", "cancelled"), zip(*rounds, strict=True), strict=True):
        print(f"{what}: {min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f} s")
