"""A query against a stored set: python benchmarks/set_ranking.py URL TOKEN FOLDER [MODEL]

FOLDER holds documents.jsonl of the Cranfield collection; the set is uploaded and ranked whole, top 10, once its
encodings are made. Prints milliseconds a request (median, 99th of 100) and requests a second with 1 and 16 clients,
each query asked once; the last line is JSON. TOKEN needs the scope jobs.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from cranfield_job import ok

CLIENTS = (1, 16)
REQUESTS = 200


def ranked(client: httpx.Client, path: str, model: str, query: str) -> httpx.Response:
    return client.post(path, json={"query": query, "model": model, "top_n": 10})


def measured(url: str, token: str, path: str, model: str, queries: Iterator[str], clients: int) -> dict[str, Any]:
    times: list[float] = []
    lock = threading.Lock()

    def run() -> None:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            while True:
                with lock:
                    query = next(queries, None)
                if query is None:
                    return
                started = time.perf_counter()
                ok(ranked(client, path, model, query))
                times.append(time.perf_counter() - started)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, times = time.perf_counter() - started, sorted(1000 * each for each in times)
    return {
        "clients": clients,
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[int(0.99 * (len(times) - 1))], 1),
        "per_second": round(len(times) / seconds, 1),
    }


def main(url: str, token: str, folder: Path, model: str = "minilm-late") -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client:
        form = {"name": "ranked", "use_existing": "true"}
        with (folder / "documents.jsonl").open("rb") as content:
            uploaded = ok(client.post("/api/v1/document-sets", files={"file": ("d.jsonl", content)}, data=form))
        path, started = f"/api/v1/document-sets/{uploaded['id']}/rank", time.perf_counter()
        while (answer := ranked(client, path, model, "shock waves")).status_code == 503:
            time.sleep(1)
        ok(answer)
        print(f"{uploaded['counts']['kept']:,} documents, ready after {time.perf_counter() - started:.0f} s")
    words = ["heat", "flow", "plate", "shock", "wing", "layer", "pressure", "supersonic", "boundary", "transfer"]
    figures = []
    for clients in CLIENTS:
        # Every query is new: its encoding is a part of what is measured.
        texts = (
            f"{words[n % 10]} {words[n // 10 % 10]} of a body at {clients} and {n} degrees" for n in range(REQUESTS)
        )
        figures.append(measured(url, token, path, model, texts, clients))
        print(figures[-1])
    print(json.dumps({"documents": uploaded["counts"]["kept"], "model": model, "figures": figures}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:5])
