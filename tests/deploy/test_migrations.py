"""Migrations in an upgrade: run twice at once, not run yet, and a database that is not there."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from assay.pulse import pulse_problem
from assay.settings import env
from assay.supervisor import free_port, manage_command, web_command
from tests.deploy.conftest import Environment
from tests.integration.rig import wait_for
from tests.stack import manage

NOWHERE = "postgresql://assay:hunter2@127.0.0.1:1/assay"


@contextmanager
def running(command: list[str], environment: Environment, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=env.for_child(environment), stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(180)


def test_two_at_once_apply_each_migration_once(environment: Environment, tmp_path: Path) -> None:
    url = environment["DATABASE_URL"]
    with psycopg.connect(url) as link, psycopg.connect(url, autocommit=True) as watch:
        # Both must have come as far as the lock before either may pass it: the worst start there can be.
        link.execute("SELECT pg_advisory_xact_lock(%s)", [0x41737361_7A])
        logs = [tmp_path / "first.log", tmp_path / "second.log"]
        with (
            running(manage_command("migrate"), environment, logs[0]) as first,
            running(manage_command("migrate"), environment, logs[1]) as second,
        ):
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND query LIKE '%pg_try_advisory%'"
            )
            wait_for(lambda: watch.execute(waiting).fetchone() == (2,), seconds=180, what="both at the lock")
            link.rollback()
            assert (first.wait(120), second.wait(120)) == (0, 0), [log.read_text() for log in logs]
        applied = [log.read_text().count("Applying ") for log in logs]
        assert sorted(applied)[0] == 0 and sorted(applied)[1] > 20
        assert sum("No migrations to apply." in log.read_text() for log in logs) == 1
        rows = link.execute("SELECT count(*), count(DISTINCT (app, name)) FROM django_migrations").fetchone()
        assert rows == (applied[0] + applied[1],) * 2
    assert manage(environment, "migrate", "--check") == ""


@pytest.mark.parametrize("command", [("migrate",), ("serve", "--empty"), ("create_token", "--name", "x")])
def test_a_database_that_is_not_there_gives_a_sentence(command: tuple[str, ...], tmp_path: Path) -> None:
    environment = {
        "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
        "DATABASE_URL": NOWHERE,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "DATA_DIR": str(tmp_path),
    }
    result = subprocess.run(
        manage_command(*command),
        env=env.for_child(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1
    assert "DATABASE_URL names a PostgreSQL at 127.0.0.1, port 1, which cannot be used: " in result.stderr
    assert "Traceback" not in result.stderr and "hunter2" not in result.stderr


def test_web_and_processes_wait_for_the_migration_and_say_so(environment: Environment, tmp_path: Path) -> None:
    port = free_port()
    logs = {name: tmp_path / f"{name}.log" for name in ("web", "reconciler", "worker-1")}
    with (
        running(web_command("127.0.0.1", port), environment, logs["web"]),
        running(manage_command("reconciler"), environment, logs["reconciler"]) as reconciler,
        running(manage_command("gpu_worker"), environment, logs["worker-1"]) as worker,
    ):
        for name in ("reconciler", "worker-1"):
            said = "run `manage.py migrate`"
            wait_for(lambda: said in logs[name].read_text(), seconds=180, what=f"the sentence of {name}")  # noqa: B023
            assert "not reached the database yet" in str(pulse_problem(name, data_dir=tmp_path))
        ready = f"http://127.0.0.1:{port}/readyz"
        answer = httpx.get(ready)
        assert answer.status_code == 503
        assert (
            "migrations are not applied to the database; run `manage.py migrate`." in answer.json()["parts"]["database"]
        )
        assert httpx.get(f"http://127.0.0.1:{port}/livez").is_success
        assert (reconciler.poll(), worker.poll()) == (None, None)

        manage(environment, "migrate", "--verbosity=0")
        wait_for(lambda: httpx.get(ready).is_success, what="readiness")
        for name in ("reconciler", "worker-1"):
            wait_for(lambda: pulse_problem(name, data_dir=tmp_path) is None, seconds=180, what=name)  # noqa: B023


def test_a_waiting_process_ends_when_it_is_told_to(environment: Environment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(manage_command("reconciler"), environment, log) as process:
        wait_for(lambda: "waiting for the database" in log.read_text(), seconds=180)
        started = time.monotonic()
        process.terminate()
        assert process.wait(30) == 0
        assert time.monotonic() - started < 20
