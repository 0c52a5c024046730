"""What ``manage.py doctor`` looks at. Other apps add their checks as they add collectors to ``assay.metrics``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import redis
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection

from assay.database import unreachable
from assay.schema import migrations_missing

LEAST_POSTGRES: Final = 14_00_00
LEAST_FREE_BYTES: Final = 2 << 30
USED_SHARE: Final = 0.8
SKEW_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 5.0


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but look at it
    PROBLEM = "problem"  # something does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: how it is, and what to do about it where it is not well."""

    part: str
    status: Status
    message: str
    advice: str = ""


Check = Callable[[], Iterable[Finding]]
_checks: dict[str, Check] = {}


def register_check(part: str, check: Check) -> None:
    """Add a check; call it from ``AppConfig.ready``. What it raises of the database, Redis or the disk is a finding."""
    if part in _checks:
        raise ValueError(f"A check of '{part}' is registered already.")
    _checks[part] = check


def examine() -> Iterator[Finding]:
    """Every check's findings, in the order registered."""
    for part, check in _checks.items():
        try:
            yield from check()
        except OperationalError as error:
            connection.close()
            yield Finding(part, Status.PROBLEM, "The database does not answer.", unreachable(error))
        except DatabaseError as error:
            advice = "Run `manage.py migrate`; if it persists, the log of PostgreSQL says more."
            yield Finding(part, Status.PROBLEM, _first_line(error), advice)
        except redis.RedisError as error:
            advice = "Start Redis or correct REDIS_URL; jobs go on without it, synchronous requests do not."
            yield Finding(part, Status.PROBLEM, f"Redis does not answer: {_first_line(error)}", advice)
        except OSError as error:
            yield Finding(part, Status.PROBLEM, _first_line(error), "Correct DATA_DIR or its owner.")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _database() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version'), pg_size_pretty(pg_database_size(current_database()))")
        version, size = cursor.fetchone()
        number = connection.pg_version  # type: ignore[attr-defined] # of PostgreSQL's backend
        if number < LEAST_POSTGRES:
            yield Finding("database", Status.PROBLEM, f"PostgreSQL {version} is too old.", "Upgrade to 14 or newer.")
        yield Finding("database", Status.OK, f"PostgreSQL {version}, {size}")
        yield _connections(cursor)
        yield _clock(cursor)


def _connections(cursor: Any) -> Finding:
    """The server's, not a pooler's: its own limit is in its own SHOW POOLS."""
    cursor.execute(
        "SELECT count(*), current_setting('max_connections')::int - current_setting('superuser_reserved_connections')"
        "::int FROM pg_stat_activity WHERE backend_type = 'client backend'"
    )
    used, limit = cursor.fetchone()
    message = f"{used} of {limit} connections in use"
    if used > limit * USED_SHARE:
        advice = "Raise max_connections, or put PgBouncer in front (docs/deploy.md): the next process may be refused."
        return Finding("connections", Status.PROBLEM, message, advice)
    return Finding("connections", Status.OK, message)


def _clock(cursor: Any) -> Finding:
    """Leases run on the database's clock alone, so a skew harms what people read, not what is computed."""
    before = datetime.now(UTC)
    cursor.execute("SELECT clock_timestamp()")
    (theirs,) = cursor.fetchone()
    ours = before + (datetime.now(UTC) - before) / 2
    skew = (ours - theirs).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        message = f"This host's clock is {abs(skew):.1f} s {way} the database's."
        return Finding("clock", Status.WARNING, message, "Synchronise both by NTP: logs and pages tell wrong times.")
    return Finding("clock", Status.OK, f"{skew:+.3f} s against the database's")


def _migrations() -> Iterator[Finding]:
    missing = migrations_missing()
    if missing:
        message = f"{len(missing)} migrations are not applied, the first is {missing[0]}."
        yield Finding("migrations", Status.PROBLEM, message, "Run `manage.py migrate`; processes wait for it.")
    else:
        yield Finding("migrations", Status.OK, "all applied")


def _redis() -> Iterator[Finding]:
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=PATIENCE_SECONDS) as client:
        about: dict[str, Any] = client.info()
    used, limit = about["used_memory"], about.get("maxmemory", 0)
    policy = about["maxmemory_policy"]
    yield Finding("redis", Status.OK, f"Redis {about['redis_version']}, {about['used_memory_human']} used, {policy}")
    if policy != "noeviction":
        message = f"Redis may evict messages (maxmemory-policy {policy})."
        yield Finding("redis", Status.PROBLEM, message, "Set maxmemory-policy noeviction.")
    if not about["aof_enabled"]:
        yield Finding("redis", Status.PROBLEM, "Redis keeps nothing over a restart.", "Set appendonly yes.")
    elif about.get("aof_last_write_status", "ok") != "ok":
        yield Finding("redis", Status.PROBLEM, "Redis cannot write its append-only file.", "Look at its disk and log.")
    if limit and used > limit * USED_SHARE:
        message = f"Redis uses {used / limit:.0%} of its maxmemory; when it is full, requests are refused."
        yield Finding("redis", Status.PROBLEM, message, "Raise maxmemory, or find what else lives in this Redis.")


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(settings.DATA_DIR).free
    message = f"{free / 1e9:.1f} GB free in {settings.DATA_DIR}"
    if free < LEAST_FREE_BYTES:
        advice = "Uploads and caches need at least 2 GB: free some, or move DATA_DIR to a larger disk."
        yield Finding("disk", Status.PROBLEM, message, advice)
    else:
        yield Finding("disk", Status.OK, message)


for _part, _check in (("database", _database), ("migrations", _migrations), ("redis", _redis), ("disk", _disk)):
    register_check(_part, _check)
