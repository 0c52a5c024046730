"""What a job costs beside its scoring: python benchmarks/jobs.py [DOCUMENTS [QUERIES]]

Pairs a second from the first lease to the stored ranking, against the bare engine on the same pairs in one request.
Bundled encoder, late interaction, texts of 60 random words that no cache knows. The platform is started in a folder of
its own with one worker of all cores, then with two that share them.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from cranfield import bundled_model
from cranfield_job import ok, register, upload, wait

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest

CORES, PORT, LIMIT = len(os.sched_getaffinity(0)), 8973, 256
MANAGE = (sys.executable, "manage.py")
WORDS = [first + last for first in ("wing", "heat", "flow", "plate", "shock") for last in ("s", "ing", "ed", "let")]


def texts(count: int, words: int) -> list[str]:
    return [" ".join(random.choices(WORDS, k=words)) for _ in range(count)]


def bare(documents: list[str], queries: list[str]) -> float:
    engine = Engine(EngineConfig(device="cpu", threads=CORES))
    engine.load(ModelSpec("late", bundled_model(), ModelKind.LATE_INTERACTION, dtype="float32", max_length=LIMIT))
    engine.submit(ScoringRequest("late", tuple(texts(2, 8)), tuple(texts(8, 60)))).result()  # warm
    started = time.perf_counter()
    engine.submit(ScoringRequest("late", tuple(queries), tuple(documents))).result()
    seconds = time.perf_counter() - started
    engine.close()
    return seconds


def job(workers: int, folder: str, **rows: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "DATA_DIR": folder, "DEVICE": "cpu", "ENGINE_THREADS": str(max(1, CORES // workers))}
    serve = [*MANAGE, "serve", "--empty", f"--port={PORT}", f"--workers={workers}"]
    with subprocess.Popen(serve, env=environment | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE) as server:
        try:
            while b"Ctrl-C" not in (server.stdout or sys.stdin.buffer).readline():
                assert server.poll() is None, "the platform did not start"
            make = [*MANAGE, "create_token", "--name=jobs", "--scopes", "jobs", "models:read", "models:write"]
            token = subprocess.run(make, env=environment, capture_output=True, text=True, check=True).stdout.strip()
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers=headers, timeout=300) as client:
                register(client, "late", "late-interaction", LIMIT)
                sets = {}
                for name, own in rows.items():
                    path = Path(folder) / f"{name}.csv"
                    path.write_text("id,text\n" + "".join(f"{number},{text}\n" for number, text in enumerate(own)))
                    sets[name] = upload(client, path, f"{name.replace('_', '-')}s")["id"]
                new = ok(client.post("/api/v1/jobs", json={"model": "late", **sets}))
                return wait(client, f"/api/v1/jobs/{new['id']}", ("completed",))
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    count, asked = (int(given or usual) for given, usual in zip([*sys.argv[1:3], "", ""], (2000, 100), strict=False))
    documents, queries = texts(count, 60), texts(asked, 8)
    pairs, engine = count * asked, bare(documents, queries)
    print(f"{platform.machine()}, {CORES} cores, {asked} × {count} pairs; engine {pairs / engine:,.0f} pairs/s")
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            row = job(workers, folder, document_set=documents, query_set=queries)
        chunks, seconds = row["progress"]["chunks"]["done"], pairs / row["progress"]["rate"]
        more = 1000 * (seconds - engine) / chunks
        print(f"{workers} worker(s): {pairs / seconds:,.0f} pairs/s, {engine / seconds:.2f} × the engine, "
              f"{more:.0f} ms more per chunk of {chunks}")  # fmt: skip
