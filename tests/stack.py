"""The running platform as a fixture: a database and a Redis database of its own, and every part as a real process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psutil
import psycopg
import pytest
import redis
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay.settings import env
from assay.supervisor import Platform, end_orphans, free_port, manage_command

DATABASE = "assay_stack"
REDIS_DATABASE = 3
ADMIN_PASSWORD = "the admin of the test stack"
LOG_LINES = 40
AT_ONCE = (0.2,)  # a process that a test kills starts again so soon, however often it is killed


@dataclass
class Stack:
    """``client`` carries a token with every scope; ``manage`` runs a command against the same database and Redis."""

    platform: Platform
    environment: dict[str, str]
    client: httpx.Client
    token: str

    @property
    def base_url(self) -> str:
        return self.platform.url

    @property
    def database_url(self) -> str:
        return self.environment["DATABASE_URL"]

    @property
    def redis_url(self) -> str:
        return self.environment["REDIS_URL"]

    @property
    def workers(self) -> list[str]:
        return [name for name in self.platform.programs if name.startswith("worker-")]

    def manage(self, *arguments: str) -> str:
        return manage(self.environment, *arguments)

    def start_worker(self) -> str:
        return self.platform.start_worker()

    def kill_worker(self, number: int = signal.SIGKILL, *, name: str | None = None, restart: bool = False) -> str:
        """Send a signal to a worker (the newest, if not named); unless it may restart, wait until it is gone."""
        name = name or self.workers[-1]
        self.platform.signal(name, number, restart=restart)
        return name

    def memory_bytes(self, name: str) -> int:
        """Resident memory of the largest process of the named part (the web server has a master and a worker)."""
        leader = self.platform.programs[name].process
        assert leader is not None
        family = psutil.Process(leader.pid)
        return max(process.memory_info().rss for process in [family, *family.children(recursive=True)])

    def log(self, name: str) -> str:
        return self.platform.log_path(name).read_text(errors="replace")


def manage(environment: dict[str, str], *arguments: str) -> str:
    """Run a management command as its own process; its output, or an AssertionError that holds it."""
    result = subprocess.run(
        manage_command(*arguments),
        env=env.for_child(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, f"manage.py {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    data_dir = Path(settings.DATA_DIR) / "stack"
    end_orphans(data_dir)
    (data_dir / "models").mkdir(parents=True, exist_ok=True)
    environment = {
        "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
        "DATABASE_URL": _fresh_database(),
        "REDIS_URL": _fresh_redis(),
        "DATA_DIR": str(data_dir),
        "MODEL_ROOTS": str(data_dir / "models"),
        "DJANGO_SUPERUSER_PASSWORD": ADMIN_PASSWORD,
        "DEVICE": "cpu",
        # Two workers, and other tests beside them: more threads than cores wait for each other.
        "ENGINE_THREADS": "1",
        # Short enough for tests that kill a worker, long enough for a slow machine between two micro-batches.
        "LEASE_SECONDS": "6",
        "HEARTBEAT_SECONDS": "2",
        # Tests count on chunks of a certain size, whatever this machine's speed.
        "CHUNK_SECONDS": "0",
    }
    manage(environment, "migrate", "--verbosity=0")
    manage(environment, "createsuperuser", "--noinput", "--username=admin", "--email=admin@example.org")
    token = manage(environment, "create_token", "--name=tests", "--scopes", *sorted(ALL_SCOPES)).strip()
    port = free_port()
    # Its models may be computed by itself as by a server elsewhere.
    environment |= {
        "OUTGOING_ALLOWED_HOSTS": "127.0.0.1",
        "REMOTE_CREDENTIALS": f"itself@127.0.0.1:{port}={token}",
    }
    with (
        Platform(data_dir, "127.0.0.1", port, environment=environment, backoff=AT_ONCE) as platform,
        httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client,
    ):
        platform.wait_until_ready()
        yield Stack(platform, environment, client, token)


def _fresh_database() -> str:
    parts = urlsplit(settings.DATABASE_URL)
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return urlunsplit(parts._replace(path=f"/{DATABASE}"))


def _fresh_redis() -> str:
    parts = urlsplit(settings.REDIS_URL)
    address = (
        f"unix://{parts.path}?db={REDIS_DATABASE}"
        if parts.scheme == "unix"
        else urlunsplit(parts._replace(path=f"/{REDIS_DATABASE}"))
    )
    with redis.Redis.from_url(address) as client:
        client.flushdb()
    return address


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the processes' logs beside a failure of a test that used them."""
    report = yield
    running = getattr(item, "funcargs", {}).get("stack")
    if report.failed and isinstance(running, Stack):
        for log in sorted(running.platform.log_path("web").parent.glob("*.log")):
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            report.sections.append((f"log of {log.stem}", tail))
    return report
