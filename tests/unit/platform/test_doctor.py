"""``manage.py doctor`` finds what is wrong, says what to do, and ends with the status that a monitor reads."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import connection

from assay import doctor, embedded
from assay.doctor import Finding, Status


@pytest.fixture
def own_redis(data_dir: Path, settings: Any) -> Iterator[redis.Redis]:
    """A Redis server that may be set up wrongly."""
    with embedded.servers(data_dir, postgres=False):
        settings.REDIS_URL = embedded.redis_url(data_dir)
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            yield client


def findings(part: str) -> list[Finding]:
    return [finding for finding in doctor.examine() if finding.part == part]


def problems(part: str) -> str:
    return " ".join(
        f"{finding.message} {finding.advice}" for finding in findings(part) if finding.status is not Status.OK
    )


def report(*arguments: str) -> str:
    out = io.StringIO()
    with pytest.raises(CommandError, match="findings are problems"):
        call_command("doctor", *arguments, stdout=out, no_color=True)
    return out.getvalue()


@pytest.mark.django_db
def test_it_names_what_is_wrong_and_what_to_do() -> None:
    text = report()
    assert "workers      problem  No worker is ready.\n" in text
    assert "→ Start one with `manage.py gpu_worker`" in text
    assert "migrations   ok       all applied" in text


@pytest.mark.django_db
def test_json_for_a_monitor() -> None:
    found = json.loads(report("--json"))
    assert {finding["part"] for finding in found} >= {
        "database",
        "clock",
        "migrations",
        "redis",
        "disk",
        "queues",
        "workers",
    }
    assert all(finding.keys() == {"part", "status", "message", "advice"} for finding in found)
    assert all(finding["advice"] for finding in found if finding["status"] != "ok")


@pytest.mark.django_db
def test_a_dead_redis_does_not_stop_the_other_checks(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert "Redis does not answer" in problems("redis") and "REDIS_URL" in problems("redis")
    assert findings("disk") and findings("workers")


@pytest.mark.django_db
def test_a_redis_that_loses_messages(own_redis: redis.Redis) -> None:
    assert problems("redis") == ""
    own_redis.config_set("maxmemory", own_redis.info()["used_memory"] + 1000)
    own_redis.config_set("maxmemory-policy", "allkeys-lru")
    own_redis.config_set("appendonly", "no")
    said = problems("redis")
    assert "maxmemory-policy noeviction" in said and "appendonly yes" in said and "of its maxmemory" in said


@pytest.mark.django_db
def test_migrations_that_are_missing() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'audit' AND name LIKE '0002%'")
    assert "1 migrations are not applied, the first is audit.0002_append_only. Run `manage.py migrate`" in problems(
        "migrations"
    )


@pytest.mark.django_db
@pytest.mark.parametrize(("hours", "said"), [(2, "7200.0 s ahead of"), (-2, "7200.0 s behind"), (0, "")])
def test_a_clock_that_differs(monkeypatch: pytest.MonkeyPatch, hours: int, said: str) -> None:
    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(hours=hours)

    monkeypatch.setattr(doctor, "datetime", Skewed)
    assert said in problems("clock")
    assert bool(problems("clock")) == bool(said)


@pytest.mark.django_db
def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", shutil.disk_usage("/").total * 1000)
    assert "move DATA_DIR" in problems("disk")


def test_a_part_has_one_check() -> None:
    with pytest.raises(ValueError, match="registered already"):
        doctor.register_check("redis", lambda: [])
