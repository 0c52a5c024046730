"""How fast chunks are leased while many wait, and how long a reconciler's round takes beside them.

    python benchmarks/lease.py [CHUNKS] [JOBS]

Starts servers of its own, as the tests do, unless DATABASE_URL names one; works in a database that it creates and
drops. Prints leases per second with 1, 4 and 16 connections (each leases chunk after chunk for some seconds), and what
a round of the reconciler takes with 200 workers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from statistics import median

import django
from django.db import connection

SECONDS = 3.0
FILL = """
INSERT INTO scoring_chunk (job_id, stage_id, index, query_start, query_count, document_start, document_count, state,
    attempts, cause, error, failed_pairs, pair_count, raw_scores, scores, document_positions, statuses, report)
SELECT s.job_id, s.id, n, 0, 1, n * 48, 48, 'pending', 0, '', '', 0, 0, '', '', '', '', '{}'
FROM scoring_stage s, generate_series(0, %s - 1) n
"""


def prepare(chunks: int, jobs: int) -> None:
    from accounts.services import team_default
    from scoring.models import DocumentSet, Job, QuerySet, ScoringModel, Stage
    from scoring.states import ModelState, StageState

    team = team_default()
    model = ScoringModel.objects.create(name="m", kind="cross-encoder", source="x", state=ModelState.AVAILABLE)
    documents = DocumentSet.objects.create(team=team, name="d", checksum="d")
    queries = QuerySet.objects.create(team=team, name="q", checksum="q")
    per_job = chunks // jobs
    counts = {"query_count": 1, "document_count": per_job * 48, "pair_count": per_job * 48}
    for n in range(jobs):
        job = Job.objects.create(team=team, name=str(n), document_set=documents, query_set=queries, **counts)
        Stage.objects.create(
            job=job, index=0, model=model, state=StageState.RUNNING, pair_count=per_job * 48, query_block=1,
            document_block=48,
        )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(FILL, [per_job])
        cursor.execute("VACUUM ANALYZE")


def lease_for(seconds: float, connections: int) -> float:
    from scoring.services.chunks import chunk_lease

    leased, end = [0] * connections, time.monotonic() + seconds

    def lease(n: int) -> None:
        worker = worker_of(n)
        while time.monotonic() < end and chunk_lease(worker=worker):
            leased[n] += 1
        connection.close()

    threads = [threading.Thread(target=lease, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(leased) / seconds


def worker_of(n: int):
    from scoring.services.workers import worker_register

    return worker_register(
        worker_id=uuid.UUID(int=n + 1), boot_id=uuid.uuid4(), name=f"w{n}", host="h", pid=1, device="cpu"
    )


def rounds() -> float:
    from scoring.models import Chunk, Worker
    from scoring.states import ChunkState, WorkerState
    from workers.reconcile import Reconciler

    for n in range(200):
        worker_of(n)
    Worker.objects.update(state=WorkerState.READY)
    Chunk.objects.filter(state=ChunkState.LEASED).update(lease_owner=uuid.UUID(int=1))
    reconciler, seconds = Reconciler(), []
    for _ in range(10):
        started = time.monotonic()
        reconciler.tick()
        seconds.append(time.monotonic() - started)
    return median(seconds)


def main(chunks: int, jobs: int) -> None:
    prepare(chunks, jobs)
    print(f"{chunks:,} pending chunks of {jobs:,} jobs, {os.cpu_count()} cores")
    for connections in (1, 4, 16):
        print(f"{connections:3} connections: {lease_for(SECONDS, connections):7.0f} leases/s")
    print(f"a reconciler's round with 200 workers: {rounds() * 1000:.0f} ms")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.test")
    django.setup()
    from django.test.utils import setup_databases, teardown_databases

    state = setup_databases(verbosity=0, interactive=False, aliases={"default": False})
    try:
        main(int((sys.argv[1:2] or ["1000000"])[0]), int((sys.argv[2:3] or ["100"])[0]))
    finally:
        teardown_databases(state, verbosity=0)
