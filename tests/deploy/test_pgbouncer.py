"""Behind PgBouncer in transaction mode: every transaction may run on another connection of the server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay.embedded import server_user
from assay.supervisor import Platform, free_port
from tests.deploy.conftest import Environment
from tests.integration.rig import wait_for
from tests.integration.running import Rows, checked, finished, registered, submitted
from tests.stack import manage

pytestmark = pytest.mark.stack
POOL = 6  # connections to the server, for all processes together
CONFIGURATION = """
[databases]
{name} = host={sockets} dbname={name} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
"""


@pytest.fixture
def pooled(environment: Environment, tmp_path: Path) -> Iterator[Environment]:
    """The environment of a platform that reaches its database through a pooler only."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed here")
    direct = urlsplit(environment["DATABASE_URL"])
    port, name = free_port(), direct.path.lstrip("/")
    with tempfile.TemporaryDirectory(prefix="pgbouncer-", dir=settings.DATA_DIR) as name_of_folder:
        folder = Path(name_of_folder)
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            CONFIGURATION.format(
                name=name, sockets=parse_qs(direct.query)["host"][0], port=port, users=folder / "users.txt", size=POOL
            )
        )
        folder.chmod(0o755)
        owner = server_user()  # of the server's socket; as root pgbouncer refuses to run
        user = owner.pw_uid if owner else None
        with (tmp_path / "pgbouncer.log").open("w") as log:
            process = subprocess.Popen([program, str(folder / "pgbouncer.ini")], stdout=log, stderr=log, user=user)
        try:
            address = f"postgresql://postgres@127.0.0.1:{port}/{name}"
            wait_for(lambda: _connects(address), what="pgbouncer")
            yield {**environment, "DATABASE_URL": address, "DATABASE_POOLED": "true"}
        finally:
            process.terminate()
            process.wait(30)


def _connects(address: str) -> bool:
    try:
        psycopg.connect(address, prepare_threshold=None).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_job_a_request_and_an_export_go_through_a_few_connections(
    pooled: Environment, environment: Environment, tmp_path: Path
) -> None:
    manage(pooled, "migrate", "--verbosity=0")
    token = manage(pooled, "create_token", "--name=tests", "--scopes", *sorted(ALL_SCOPES)).strip()
    rows = Rows(environment["DATABASE_URL"])
    with (
        Platform(tmp_path, "127.0.0.1", free_port(), environment=pooled, workers=2) as platform,
        httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client,
    ):
        platform.wait_until_ready()
        model = registered(client, "late")
        job = submitted(client, model, chunks=6)
        assert finished(client, job)["state"] == "completed"
        body = {"model": model, "query": "honey", "documents": ["bees make honey"]}
        assert checked(client.post("/rerank", json=body))["results"]
        assert client.get(f"/api/v1/jobs/{job['id']}/export", params={"format": "jsonl"}).text.count("\n") >= 384
        # The reconciler goes on ticking: no lock of its was left on a connection that somebody else got.
        for _ in range(2):
            again = submitted(client, model, chunks=1, queries=1)
            assert finished(client, again)["state"] == "completed"
        (held,) = rows(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert 0 < held[0] <= POOL
    rows.close()
