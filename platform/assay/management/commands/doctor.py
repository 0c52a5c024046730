"""Does this installation have what it needs? One line per part; the exit status says whether all are well."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import redis
from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

LEAST_FREE_BYTES = 2 << 30


class Problem(Exception):
    """What is wrong and what to do."""


class Command(BaseCommand):
    help = "Check the database, Redis, the disk and the workers of this installation."

    def handle(self, *args: Any, **options: Any) -> None:
        problems = 0
        for name, check in CHECKS.items():
            try:
                self.stdout.write(f"{name:<10}{self.style.SUCCESS('ok')}       {check()}")
            except (Problem, DatabaseError, redis.RedisError, OSError) as error:
                problems += 1
                self.stdout.write(f"{name:<10}{self.style.ERROR('problem')}  {str(error).strip()}")
        if problems:
            raise CommandError(f"{problems} of {len(CHECKS)} parts have a problem.")


def database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version'), pg_size_pretty(pg_database_size(current_database()))")
        version, size = cursor.fetchone()
    executor = MigrationExecutor(connection)
    if waiting := len(executor.migration_plan(executor.loader.graph.leaf_nodes())):
        raise Problem(f"{waiting} migrations are not applied; run `manage.py migrate`.")
    return f"PostgreSQL {version}, {size}, all migrations applied"


def message_queue() -> str:
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5) as client:
        about: dict[str, Any] = client.info()
    if about["maxmemory_policy"] != "noeviction":
        raise Problem(
            f"Redis evicts keys ({about['maxmemory_policy']}): messages would vanish; set maxmemory-policy noeviction."
        )
    if not about["aof_enabled"]:
        raise Problem("Redis keeps nothing over a restart; set appendonly yes.")
    return f"Redis {about['redis_version']}, {about['used_memory_human']} used, noeviction, append-only file"


def disk() -> str:
    free = shutil.disk_usage(settings.DATA_DIR).free
    if free < LEAST_FREE_BYTES:
        raise Problem(f"{settings.DATA_DIR} has {free / 1e9:.1f} GB left; uploads and caches need at least 2 GB.")
    return f"{free / 1e9:.0f} GB free in {settings.DATA_DIR}"


def workers() -> str:
    ready = apps.get_model("scoring", "Worker").objects.filter(state="ready").count()
    if not ready:
        raise Problem("No worker is ready: requests are refused and jobs wait. Start one with `manage.py gpu_worker`.")
    return f"{ready} ready"


CHECKS: dict[str, Callable[[], str]] = {"database": database, "redis": message_queue, "disk": disk, "workers": workers}
