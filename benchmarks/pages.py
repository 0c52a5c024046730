"""How fast the pages are when the database is full: python benchmarks/pages.py [DOCUMENTS] [JOBS]

Fills a database of its own (1,000,000 documents, 1,000 jobs of 20 chunks, 100,000 score requests, 100,000 audit events)
and asks the platform's web server for each list, 20 times one after the other. Then it shows what the database does to
count each list. Slower than WANTED at p95: status 1.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

WANTED, VIEWS, SETS, CHUNKS, REQUESTS, EVENTS = 150, 20, 50, 20, 100_000, 100_000
WORDS = [
    f"{start}{middle}{end}" for start in "bdfklmprst" for middle in ("an", "or", "el", "ish") for end in "aeiouxyz"
]
LONG = ("text", "queries", "documents", "problems")  # columns that no count may read


def copy(table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
    from django.db import connection

    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as sink:
        for row in rows:
            sink.write_row(row)


def fill(documents: int, jobs: int) -> Any:
    """Returns the user who looks at it."""
    from django.contrib.auth.models import User

    from accounts.models import Membership
    from accounts.scopes import Role
    from accounts.services import team_default
    from tests.integration.simulated_fleet import served_model

    user, team = User.objects.create_superuser("analyst"), team_default()
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    model, owner = served_model("late"), {"team": team, "created_by": user}
    made = fill_jobs(owner, model, *fill_sets(owner, documents), jobs)
    fill_requests(owner, model)
    copy(
        "audit_auditevent",
        "at, verb, actor_user_id, actor_label, team_id, target_type, target_id, target_label, detail, request_id",
        (
            ("now", "job.submitted", user.pk, "analyst", team.pk, "scoring.job", made[n % jobs], "job", "{}", "")
            for n in range(EVENTS)
        ),
    )
    return user


def fill_sets(owner: dict[str, Any], documents: int) -> tuple[list[Any], list[Any]]:
    """Document sets, half of all documents in the first, and query sets."""
    from scoring.models import DocumentSet, Query, QuerySet
    from scoring.states import SetState

    draw, shared = random.Random(0), {**owner, "state": SetState.READY, "checksum": "0"}
    small = documents // 2 // (SETS - 1)
    sizes = [documents - small * (SETS - 1), *[small] * (SETS - 1)]
    sets = [DocumentSet.objects.create(name=f"set {n}", counts={"kept": sizes[n]}, **shared) for n in range(SETS)]
    queries = [QuerySet.objects.create(name=f"queries {n}", counts={"kept": 10}, **shared) for n in range(SETS)]
    Query.objects.bulk_create(
        Query(query_set=one, position=n, external_id=f"q{n}", text=" ".join(draw.choices(WORDS, k=6)))
        for one in queries
        for n in range(10)
    )
    copy(
        "scoring_document",
        "document_set_id, position, external_id, title, text, metadata, is_empty",
        (
            (one.pk, n, f"d{n}", f"Title {n}", " ".join(draw.choices(WORDS, k=40)), "{}", False)
            for one, size in zip(sets, sizes, strict=True)
            for n in range(size)
        ),
    )
    return sets, queries


def fill_jobs(owner: dict[str, Any], model: Any, sets: list[Any], queries: list[Any], count: int) -> list[str]:
    """The ids of jobs of one stage; seven of ten have ended."""
    from scoring.models import Job, Stage
    from scoring.states import ChunkState, JobState, StageState

    states = [*[JobState.COMPLETED] * 7, JobState.FAILED, JobState.RUNNING, JobState.QUEUED]
    jobs = Job.objects.bulk_create(
        Job(
            **owner, name=f"job {n}", document_set=sets[n % SETS], query_set=queries[n % SETS], query_count=10,
            document_count=50 * CHUNKS, pair_count=500 * CHUNKS, state=states[n % 10],
        )
        for n in range(count)
    )  # fmt: skip
    stages = Stage.objects.bulk_create(
        Stage(
            job=job, index=0, model=model, pair_count=job.pair_count, query_block=10, document_block=50,
            state=StageState.DONE if job.state == JobState.COMPLETED else StageState.RUNNING,
        )
        for job in jobs
    )  # fmt: skip
    chunk_states = {StageState.DONE: ChunkState.DONE, StageState.RUNNING: ChunkState.PENDING}
    scores, statuses = bytes(4 * 500), bytes(500)
    copy(
        "scoring_chunk",
        "job_id, stage_id, index, query_start, query_count, document_start, document_count, state, attempts, cause, "
        "error, failed_pairs, scored_pairs, raw_scores, scores, document_positions, statuses, pair_count, report",
        (
            (stage.job_id, stage.pk, n, 0, 10, 50 * n, 50, chunk_states[stage.state].value, 0, "",
             "", 0, 500, scores, b"", b"", statuses, 500, "{}")
            for stage in stages
            for n in range(CHUNKS)
        ),
    )  # fmt: skip
    return [str(job.pk) for job in jobs]


def fill_requests(owner: dict[str, Any], model: Any) -> None:
    from scoring.models import ScoreRequest

    texts = [" ".join(random.Random(n).choices(WORDS, k=300)) for n in range(5)]
    ScoreRequest.objects.bulk_create(
        (
            ScoreRequest(
                **owner, model=model, model_name="late", endpoint="/rerank", status_code=200, query_count=1,
                document_count=5, queries=["a query"], documents=texts, timings={"total": 12.5},
            )
            for _ in range(REQUESTS)
        ),
        batch_size=2000,
    )  # fmt: skip


def paths() -> dict[str, str]:
    from scoring.models import DocumentSet

    large = DocumentSet.objects.get(name="set 0")
    shown = f"/document-sets/{large.pk}/"
    return {
        "home": "/",
        "jobs": "/jobs/",
        "jobs, page 40": "/jobs/?page=40",
        "jobs by name and state": "/jobs/?name=job+1&state=completed&sort=-name",
        "new job": "/jobs/new/",
        "document sets": "/document-sets/",
        "a set": shown,
        "a set, last page": f"{shown}?page={large.counts['kept'] // 25}",
        "a set, by an id": f"{shown}?search=d1000",
        "a set, by common words": f"{shown}?search={WORDS[0]}+{WORDS[50]}",
        "query sets": "/query-sets/",
        "score requests": "/score-requests/",
        "score requests, page 1000": "/score-requests/?page=1000",
        "comparisons": "/comparisons/",
        "exports": "/exports/",
        "models": "/models/",
        "workers": "/workers/",
        "queue": "/queue/",
        "usage": "/usage/",
        "tokens": "/tokens/",
        "webhooks": "/webhooks/",
        "audit log": "/audit/",
        "audit log, page 1000": "/audit/?page=1000",
    }


def measured(client: httpx.Client, path: str) -> tuple[float, float]:
    """p50 and p95 of a view in milliseconds; the first view, which opens connections, is not counted."""
    times = []
    for _ in range(VIEWS + 1):
        started = time.perf_counter()
        response = client.get(path)
        times.append(1000 * (time.perf_counter() - started))
        assert response.status_code == 200, f"{path}: {response.status_code}"
    ordered = sorted(times[1:])
    return ordered[VIEWS // 2], ordered[int(VIEWS * 0.95) - 1]


def show_counts() -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from audit.models import AuditEvent
    from scoring.models import Document, DocumentSet, Job, ScoreRequest
    from scoring.selectors.counting import rows_count

    large = DocumentSet.objects.get(name="set 0")
    lists = {
        "documents": Document.objects.all(),
        "documents of a set": Document.objects.filter(document_set=large),
        "jobs": Job.objects.all(),
        "score requests": ScoreRequest.objects.all(),
        "audit log": AuditEvent.objects.all(),
    }
    for name, rows in lists.items():
        with CaptureQueriesContext(connection) as asked:
            counted = rows_count(rows)
        sql = asked.captured_queries[0]["sql"]
        assert not any(f'"{column}"' in sql for column in LONG), sql
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}")
            plan = "\n    ".join(line for (line,) in cursor.fetchall())
        print(f"\n{name}: {'' if counted.exact else 'about '}{counted.rows:,}\n    {plan}")


def main(documents: int, jobs: int) -> int:
    import django

    from assay.supervisor import free_port, web_command

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client

    from benchmarks.server import started

    call_command("migrate", verbosity=0)
    began = time.monotonic()
    user = fill(documents, jobs)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    print(f"{documents:,} documents and {jobs:,} jobs in {time.monotonic() - began:.0f} s; {os.cpu_count()} cores")
    browser = Client()
    browser.force_login(user)
    cookies = {settings.SESSION_COOKIE_NAME: browser.cookies[settings.SESSION_COOKIE_NAME].value}
    port = free_port()
    figures: dict[str, tuple[float, float]] = {}
    with (
        started(web_command("127.0.0.1", port)),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", cookies=cookies, timeout=60) as client,
    ):
        wait_until_up(client)
        for name, path in paths().items():
            figures[name] = measured(client, path)
            print(f"{name:28} p50 {figures[name][0]:6.1f} ms   p95 {figures[name][1]:6.1f} ms", flush=True)
    show_counts()
    print(json.dumps({"documents": documents, "jobs": jobs, "p50_ms": {k: round(v[0], 1) for k, v in figures.items()}}))
    return int(any(late > WANTED for _, late in figures.values()))


def wait_until_up(client: httpx.Client) -> None:
    while True:
        try:
            client.get("/livez").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        os.environ.update(
            DJANGO_SETTINGS_MODULE="assay.settings.dev",
            DATA_DIR=folder,
            PYTHONPATH=os.pathsep.join(sys.path[:2]),
            LOG_LEVEL="WARNING",
        )
        os.environ.pop("DATABASE_URL", None)
        from assay.embedded import servers

        given = (*sys.argv[1:], *("1000000", "1000")[len(sys.argv) - 1 :])
        with servers(Path(folder)):
            status = main(int(given[0]), int(given[1]))
    raise SystemExit(status)
