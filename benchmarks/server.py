"""The web server by its two interfaces: python benchmarks/server.py [SECONDS]

A platform of its own in a temporary folder, one worker, MiniLM; beside its web server a second one on the same rows
that speaks WSGI with as many threads. Both answer `/rerank` for one cached document, which the engine takes no time
for, and `/v1/models`, with 1, 16, 64 and 256 clients that keep their connections, in turns so that whatever else the
machine does meets both alike. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from assay.embedded import database_url, redis_url, servers
from assay.settings import env
from assay.supervisor import Platform, free_port, manage_command

CLIENTS = (1, 16, 64, 256)
ROUNDS = 3
MODEL = "minilm-late"
BODY = json.dumps({"model": MODEL, "query": "honey", "documents": ["bees make honey"]}).encode()


async def client(url: str, request: bytes, until: float, times: list[float], statuses: Counter[int]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    while (started := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        statuses[int(head.split(b" ", 2)[1])] += 1
        times.append(time.perf_counter() - started)
    writer.close()


def measured(url: str, request: bytes, clients: int, seconds: float) -> tuple[list[float], Counter[int]]:
    times: list[float] = []
    statuses: Counter[int] = Counter()

    async def run() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(url, request, until, times, statuses) for _ in range(clients)))

    asyncio.run(run())
    return times, statuses


def requests_of(token: str) -> dict[str, bytes]:
    common = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
    rerank = f"POST /rerank HTTP/1.1\r\n{common}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    return {"rerank": rerank.encode() + BODY, "models": f"GET /v1/models HTTP/1.1\r\n{common}\r\n".encode()}


@contextlib.contextmanager
def wsgi_server(environment: dict[str, str], threads: int) -> Iterator[str]:
    port = free_port()
    command = [
        sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--blocking-threads", str(threads), "--no-log", "assay.wsgi:application",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=env.for_child(environment), cwd=env.ROOT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str) -> None:
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").is_success:
                return
        time.sleep(0.2)


def manage(environment: dict[str, str], *arguments: str) -> str:
    command, child = manage_command(*arguments), env.for_child(environment)
    return subprocess.run(command, env=child, check=True, capture_output=True, text=True).stdout.strip()


def main(seconds: float) -> None:
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary, servers(folder := Path(temporary)):
        environment = {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "DATABASE_URL": database_url(folder),
            "REDIS_URL": redis_url(folder),
            "DATA_DIR": str(folder),
            "DEVICE": "cpu",
            "WEB_THREADS": "96",
            "LOG_LEVEL": "WARNING",
        }
        manage(environment, "migrate", "--verbosity=0")
        token = manage(
            environment, "create_token", "--name=benchmark", "--scopes", "score", "models:read", "models:write"
        )
        with (
            Platform(folder, "127.0.0.1", free_port(), environment=environment) as platform,
            wsgi_server(environment, 96) as wsgi,
        ):
            urls = {"asgi": platform.url, "wsgi": wsgi}
            for url in urls.values():
                wait_for(url)
            manage(environment, "demo_data")
            heads = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            while not httpx.post(f"{wsgi}/rerank", content=BODY, headers=heads, timeout=120).is_success:
                time.sleep(1)
            for name, request in requests_of(token).items():
                for clients in CLIENTS:
                    compared(figures, name, request, clients, urls, seconds)
    print(json.dumps({"seconds": seconds, "cores": os.cpu_count(), **figures}))


def compared(
    figures: dict[str, dict[str, float]], name: str, request: bytes, clients: int, urls: dict[str, str], seconds: float
) -> None:
    rates: dict[str, list[float]] = {which: [] for which in urls}
    times: dict[str, list[float]] = {which: [] for which in urls}
    for _ in range(ROUNDS):
        for which, url in urls.items():
            found, statuses = measured(url, request, clients, seconds)
            rates[which].append(statuses[200] / seconds)
            times[which] += found
            if refused := {status: count for status, count in statuses.items() if status != 200}:
                print(f"{name}, {clients} clients, {which}: refused {refused}")
    rate = {which: statistics.median(found) for which, found in rates.items()}
    middle = {which: 1000 * statistics.median(found) for which, found in times.items()}
    late = {which: 1000 * sorted(found)[int(len(found) * 0.99)] for which, found in times.items()}
    for which in urls:
        spread = f"p50 {middle[which]:7.2f} ms, p99 {late[which]:8.2f} ms"
        print(f"{name:7} {clients:4} clients {which}: {rate[which]:7.1f}/s, {spread}", flush=True)
    figures[f"{name}_{clients}"] = {
        "asgi_per_second": round(rate["asgi"], 1),
        "wsgi_per_second": round(rate["wsgi"], 1),
        "rate_ratio": round(rate["asgi"] / max(rate["wsgi"], 1e-9), 3),
        "p50_ratio": round(middle["asgi"] / middle["wsgi"], 3),
        "p99_ratio": round(late["asgi"] / late["wsgi"], 3),
    }


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
