"""What a fleet costs the database and the web process: python benchmarks/fleet.py

Simulated workers (rows, claims, heartbeats through the real services, no model) in a database of its own that takes 30
connections: seconds of the workers' page, of a tick of the reconciler and of planning a request of 1,000 documents,
and heartbeats a second, for fleets from 10 to 200. Needs a server where a role and a database may be made.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
SIZES, ROUNDS, CONNECTIONS, NAME = (10, 50, 100, 200), 9, 30, "assay_fleet"


def median_ms(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def limited_database(url: str) -> str:
    """An empty database that takes CONNECTIONS of its owner, who is no superuser: those know no limit."""
    import psycopg

    parts = urlsplit(url)
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as link:
        link.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        link.execute(f"DROP ROLE IF EXISTS {NAME}")
        link.execute(f"CREATE ROLE {NAME} LOGIN")
        link.execute(f"CREATE DATABASE {NAME} OWNER {NAME} CONNECTION LIMIT {CONNECTIONS}")
    return urlunsplit(parts._replace(path=f"/{NAME}", netloc=f"{NAME}@{parts.netloc.rpartition('@')[2]}"))


def run() -> None:
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from scoring import routing
    from scoring.payloads import SyncRequest
    from scoring.routing import ModelRouter
    from tests.integration.simulated_fleet import THREADS, SimulatedFleet, served_model
    from workers.reconcile import Reconciler

    call_command("migrate", verbosity=0)
    client, model, fleet, reconciler = Client(), served_model("late"), SimulatedFleet(), Reconciler()
    client.force_login(User.objects.create_superuser("admin"))
    documents = [f"document {n} " + "word " * 80 for n in range(1000)]
    call = SyncRequest(
        reply_key="", model_id=str(model.pk), model_name="late", queries=["q"], documents=documents, pairing="matrix",
        deadline=0.0,
    )  # fmt: skip

    def page() -> None:
        assert client.get("/workers/", headers={"host": "localhost"}).status_code == 200

    def plan() -> None:
        routing.ready.clear()
        ModelRouter(model).plan(call)

    print(f"{CONNECTIONS} connections, {THREADS} threads; milliseconds, median of {ROUNDS}")
    print("workers   page   tick   plan   plan, known   all beats   all claim and load")
    for size in SIZES:
        fleet.grow(size)
        started = time.perf_counter()
        fleet.hold(model)
        claims = (time.perf_counter() - started) * 1000
        beats = median_ms(fleet.beat)
        figures = (median_ms(page), median_ms(reconciler.tick), median_ms(plan))
        known = median_ms(lambda: ModelRouter(model).plan(call))
        print(f"{size:7}" + "".join(f"{ms:7.1f}" for ms in figures) + f"{known:14.1f}{beats:12.1f}{claims:21.0f}")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.dev")
    os.environ |= {"LOG_LEVEL": "WARNING", "HEARTBEAT_SECONDS": "120"}  # nobody is lost while others are measured
    from assay import embedded
    from assay.settings import base, env

    with embedded.servers(base.DATA_DIR, postgres=not env.given("DATABASE_URL"), redis=not env.given("REDIS_URL")):
        os.environ["DATABASE_URL"] = limited_database(base.DATABASE_URL)
        for name in [name for name in sys.modules if name.startswith("assay.settings")]:
            del sys.modules[name]  # they were read with the address of the server's own database
        run()


if __name__ == "__main__":
    main()
