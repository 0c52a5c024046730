"""A worker on another host: work goes over the network, and the network may go away for longer than a lease."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay import embedded
from assay.supervisor import manage_command, web_command
from tests.deploy.hosts import Cable, two_hosts
from tests.integration.rig import wait_for
from tests.integration.running import Rows, checked, finished, registered, submitted
from tests.stack import manage

pytestmark = pytest.mark.stack
LEASE_SECONDS = 4


@dataclass(frozen=True)
class Apart:
    client: httpx.Client
    rows: Rows
    cable: Cable


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    """PostgreSQL, Redis, web and reconciler on one host, the only worker on the other."""
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir=settings.DATA_DIR) as name_of_folder,
        two_hosts(tmp_path) as pair,
    ):
        folder = Path(name_of_folder)
        local, user = embedded.database_url(folder), embedded.server_user()
        with embedded.servers(folder, redis=False):  # made, and stopped again
            pass
        with (folder / "postgres" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.217.0.0/16 trust\n")
        sockets = str(embedded.socket_folder(folder))
        postgres = [str(embedded.postgres_programs() / "postgres"), "-D", str(folder / "postgres"), "-h", "0.0.0.0"]
        pair.near.start("postgres", [*postgres, "-k", sockets], {}, user=(user.pw_uid, user.pw_gid) if user else None)
        redis = [embedded.redis_program(), "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", str(tmp_path)]
        pair.near.start("redis", [*redis, "--appendonly", "yes", "--maxmemory-policy", "noeviction"], {})
        common = {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "ALLOWED_HOSTS": pair.address_here,
            "DEVICE": "cpu",
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "HEARTBEAT_SECONDS": "1",
            "CHUNK_SECONDS": "0",  # chunks as planned, so that they can be counted
        }
        near = {
            **common,
            "DATABASE_URL": "postgresql://postgres@127.0.0.1/assay",
            "REDIS_URL": "redis://127.0.0.1:6379/0",
            "DATA_DIR": str(tmp_path / "near"),
        }
        far = {
            **common,
            "DATABASE_URL": f"postgresql://postgres@{pair.address}/assay",
            "REDIS_URL": f"redis://{pair.address}:6379/0",
            "DATA_DIR": str(tmp_path / "far"),
        }
        here = {**near, "DATABASE_URL": local, "REDIS_URL": f"redis://{pair.address_here}:6379/0"}
        wait_for(lambda: _accepts(local), seconds=180, what="PostgreSQL")
        pair.far.start("worker", manage_command("gpu_worker", "--name", "far"), far)  # it waits for the migration
        manage(here, "migrate", "--verbosity=0")
        token = manage(here, "create_token", "--name=tests", "--scopes", *sorted(ALL_SCOPES)).strip()
        pair.near.start("web", web_command("0.0.0.0", 8000), near)
        pair.near.start("reconciler", manage_command("reconciler"), near)
        rows = Rows(local)
        with httpx.Client(
            base_url=f"http://{pair.address_here}:8000", headers={"Authorization": f"Bearer {token}"}, timeout=120
        ) as client:
            wait_for(lambda: _ready(client), seconds=180, what="the web server")
            wait_for(lambda: rows.alive() == ["far"], seconds=120, what="the worker on the other host")
            yield Apart(client, rows, pair.cable)
        rows.close()


def _accepts(address: str) -> bool:
    import psycopg

    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False


def rerank(client: httpx.Client, model: str) -> httpx.Response:
    documents = ["bees make honey", "the bridge is closed"]
    return client.post("/rerank", json={"model": model, "query": "honey", "documents": documents})


def test_work_goes_over_the_network_and_survives_its_loss(apart: Apart) -> None:
    client, rows = apart.client, apart.rows
    shaken, calm = registered(client, "late-shaken"), registered(client, "late-calm")
    before = checked(rerank(client, shaken))["results"]
    job = submitted(client, shaken, chunks=8, length=40, distinct=True)
    wait_for(lambda: rows.chunks_in(job, "done") and rows.chunks_in(job, "leased"), seconds=120, what="work in hand")

    apart.cable.pull()
    lost = "SELECT count(*) FROM scoring_worker WHERE state = 'lost'"
    back = "SELECT count(*) FROM scoring_chunk WHERE job_id = %s AND cause IN ('lease_expired', 'worker_lost')"
    wait_for(lambda: rows(lost) == [(1,)], seconds=120, what="the reconciler's notice")
    wait_for(lambda: rows(back, job["id"])[0][0] > 0, seconds=120, what="the chunks' return")
    assert len(rows.chunks_in(job, "done")) < 8, "it was to be cut off in mid-job"
    started = time.monotonic()
    refused = rerank(client, shaken)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_worker")
    assert time.monotonic() - started < 5

    apart.cable.plug()
    assert finished(client, job, seconds=300)["state"] == "completed"
    wait_for(lambda: rerank(client, shaken).is_success, seconds=120, what="an answer")
    assert checked(rerank(client, shaken))["results"] == before
    undisturbed = submitted(client, calm, chunks=8, length=40, distinct=True)
    assert finished(client, undisturbed, seconds=300)["state"] == "completed"
    np.testing.assert_array_equal(rows.scores(job), rows.scores(undisturbed))
    # The link's loss is nobody's fault: it counts against no chunk, and each was stored once.
    assert rows("SELECT max(attempts), count(*) FROM scoring_chunk WHERE job_id = %s", job["id"]) == [(0, 8)]
    done = (
        "SELECT count(*), count(DISTINCT entity_id) FROM scoring_transition t JOIN scoring_chunk c ON t.entity_id = "
        "c.id::text WHERE t.entity = 'chunk' AND t.to_state = 'done' AND c.job_id = %s"
    )
    assert rows(done, job["id"]) == [(8, 8)]
    assert rows("SELECT count(*) FROM scoring_chunk WHERE state = 'leased'") == [(0,)]
