"""The web server by its two interfaces: python benchmarks/server.py [SECONDS]

Two servers on the same rows, in a folder of their own: one speaks ASGI as the platform's does, the other WSGI with as
many threads. A worker without a model answers `/rerank` at once, so that what is timed is web, queue and reply;
`/v1/models` is a page that waits for nobody. 1, 16, 64 and 256 clients that keep their connections, the two servers in
turns so that whatever else the machine does meets both alike. The last line is JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "platform"), str(ROOT / "benchmarks/http")]

from load import load, percentile  # noqa: E402 - found by the line above

CLIENTS, ROUNDS, THREADS = (1, 16, 64, 256), 3, "64"
BODY = json.dumps({"model": "late", "query": "honey", "documents": ["bees make honey"]}).encode()


def requests_of(token: str) -> dict[str, bytes]:
    common = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
    rerank = f"POST /rerank HTTP/1.1\r\n{common}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    return {"rerank": rerank.encode() + BODY, "models": f"GET /v1/models HTTP/1.1\r\n{common}\r\n".encode()}


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(server: psutil.Process) -> float:
    """Of all its processes. Unlike a wall clock it hardly tells what else the machine does."""
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def prepared() -> str:
    """The tables, a model that a worker without one holds, a token."""
    from django.core.management import call_command

    from accounts.services import team_default, token_create
    from tests.integration.simulated_fleet import served_model

    call_command("migrate", verbosity=0)
    served_model("late")
    return token_create(team=team_default(), name="benchmark", scopes=["score", "models:read"])[1]


def main(seconds: float) -> None:
    import django

    from assay.supervisor import free_port, web_command

    django.setup()
    from scoring.models import ScoringModel
    from tests.integration.light_fleet import LightFleet

    figures: dict[str, dict[str, float]] = {}
    token, ports = prepared(), {"asgi": free_port(), "wsgi": free_port()}
    wsgi = [
        sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(ports["wsgi"]),
        "--workers", "1", "--blocking-threads", THREADS, "--no-log", "assay.wsgi:application",
    ]  # fmt: skip
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    asgi = web_command("127.0.0.1", ports["asgi"])
    with started(asgi) as first, started(wsgi) as second, contextlib.closing(LightFleet()) as fleet:
        servers = {"asgi": (urls["asgi"], first), "wsgi": (urls["wsgi"], second)}
        fleet.start("light-1")
        fleet.give(ScoringModel.objects.get(), "light-1")
        for name, request in requests_of(token).items():
            for url in urls.values():
                wait_until_ok(url, request)
            for clients in CLIENTS:
                compared(figures, name, request, clients, servers, seconds)
    print(json.dumps({"seconds": seconds, "cores": os.cpu_count(), **figures}))


def wait_until_ok(url: str, request: bytes) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError):
            if load(url, lambda _: request, clients=1, seconds=0.1).statuses[200]:
                return
        time.sleep(0.2)


def compared(
    figures: dict[str, dict[str, float]],
    name: str,
    request: bytes,
    clients: int,
    servers: dict[str, tuple[str, psutil.Process]],
    seconds: float,
) -> None:
    rates: dict[str, list[float]] = {which: [] for which in servers}
    times: dict[str, list[float]] = {which: [] for which in servers}
    cpu = dict.fromkeys(servers, 0.0)
    for _ in range(ROUNDS):
        for which, (url, server) in servers.items():
            before = cpu_seconds(server)
            found = load(url, lambda _: request, clients=clients, seconds=seconds)
            cpu[which] += cpu_seconds(server) - before
            rates[which].append(found.rate)
            times[which] += found.times
            if found.refused:
                print(f"{name}, {clients} clients, {which}: refused {found.refused}")
    rate = {which: statistics.median(found) for which, found in rates.items()}
    middle = {which: percentile(found, 0.5) for which, found in times.items()}
    late = {which: percentile(found, 0.99) for which, found in times.items()}
    each = {which: 1000 * cpu[which] / len(times[which]) for which in servers}
    for which in servers:
        spread = f"p50 {middle[which]:.2f} ms, p99 {late[which]:.2f} ms, {each[which]:.2f} ms of CPU each"
        print(f"{name:7} {clients:4} clients {which}: {rate[which]:7.1f}/s, {spread}", flush=True)
    figures[f"{name}_{clients}"] = {
        f"{what}_ratio": round(figure["asgi"] / max(figure["wsgi"], 1e-9), 3)
        for what, figure in (("rate", rate), ("p50", middle), ("p99", late), ("cpu", each))
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            DJANGO_SETTINGS_MODULE="assay.settings.dev",
            DATA_DIR=folder,
            PYTHONPATH=os.pathsep.join(sys.path[:2]),
            WEB_THREADS=THREADS,
            LOG_LEVEL="WARNING",
        )
        from assay.embedded import servers

        with servers(Path(folder)):
            main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
