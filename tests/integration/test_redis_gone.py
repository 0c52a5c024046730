"""Redis carries messages and counts requests: a job ends without it, under its quota, and requests are answered again
when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import pytest
import redis
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay import embedded
from assay.kept import FRESH_SECONDS
from assay.supervisor import Platform, free_port
from tests.integration.rig import wait_for
from tests.integration.running import Rows, finished, registered, submitted
from tests.stack import manage

pytestmark = pytest.mark.stack
DATABASE = "assay_redis_gone"


@dataclass
class Small:
    """A platform with a Redis server that no other test uses."""

    client: httpx.Client
    redis: embedded.Redis
    rows: Rows

    def quotas(self, assignments: str) -> None:
        assert self.rows(f"UPDATE accounts_team SET {assignments} RETURNING id")
        time.sleep(2 * FRESH_SECONDS)  # until every process has read them

    def flush(self) -> None:
        with redis.Redis.from_url(embedded.redis_url(self.redis.data_dir)) as connection:
            connection.flushall()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    server = embedded.Redis(tmp_path)
    embedded.socket_folder(tmp_path).mkdir(parents=True, exist_ok=True)
    server.start()
    environment = {
        "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
        "DATABASE_URL": _fresh_database(),
        "REDIS_URL": embedded.redis_url(tmp_path),
        "DATA_DIR": str(tmp_path),
        "DEVICE": "cpu",
        "ENGINE_THREADS": "1",
    }
    manage(environment, "migrate", "--verbosity=0")
    token = manage(environment, "create_token", "--name=tests", "--scopes", *sorted(ALL_SCOPES)).strip()
    rows = Rows(environment["DATABASE_URL"])
    try:
        with (
            Platform(tmp_path, "127.0.0.1", free_port(), environment=environment) as platform,
            httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client,
        ):
            platform.wait_until_ready()
            yield Small(client, server, rows)
    finally:
        rows.close()
        server.stop()


def _fresh_database() -> str:
    parts = urlsplit(settings.DATABASE_URL)
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return urlunsplit(parts._replace(path=f"/{DATABASE}"))


def test_a_job_ends_with_redis_flushed_and_stopped(small: Small) -> None:
    model = registered(small.client, "late")
    small.quotas("requests_per_minute = 1000, open_pairs = 10000")
    job = submitted(small.client, model, chunks=12)
    wait_for(lambda: small.rows.chunks_in(job, "done"))
    small.flush()
    small.redis.stop()
    assert len(small.rows.chunks_in(job, "done")) < 12, "it was to be stopped in mid-job"
    question = {"model": model, "query": "honey", "documents": ["bees make honey"]}
    refused = small.client.post("/rerank", json=question)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_unavailable")
    assert finished(small.client, job)["state"] == "completed"

    # Pairs are counted from rows. A job that is submitted now is found without a wake-up.
    small.quotas("open_pairs = 1")
    with pytest.raises(AssertionError, match=r"413 .*pairs of jobs that have not ended"):
        submitted(small.client, model, chunks=1)
    small.quotas("open_pairs = 512")
    assert finished(small.client, submitted(small.client, model, chunks=1))["state"] == "completed"

    small.redis.start()
    wait_for(lambda: small.client.post("/rerank", json=question).is_success, seconds=60, what="an answer")
