"""Is this process alive, and can it serve? Neither question touches a queue, so a hung model cannot hang the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from assay.schema import migrations_missing

PATIENCE_SECONDS = 2

draining = threading.Event()  # set when this process was asked to stop; it is never cleared


def _database() -> str | None:
    try:
        missing = len(migrations_missing())
    except DatabaseError as error:
        return f"The database does not answer ({type(error).__name__})."
    if missing:
        return f"{missing} migrations are not applied to the database; run `manage.py migrate`."
    return None


def _redis() -> str | None:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=PATIENCE_SECONDS, socket_connect_timeout=PATIENCE_SECONDS
        ) as client:
            client.ping()
    except redis.RedisError as error:
        return f"Redis does not answer ({type(error).__name__})."
    return None


PARTS: dict[str, Callable[[], str | None]] = {"database": _database, "redis": _redis}


@require_safe
def livez(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers at all."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database has this release's tables, Redis answers and the process is not asked to stop, else 503."""
    parts = {name: check() or "ok" for name, check in PARTS.items()}
    if draining.is_set():
        parts["process"] = "This process stops: it ends what it has in hand and takes nothing more."
    well = set(parts.values()) == {"ok"}
    return JsonResponse({"status": "ok" if well else "unavailable", "parts": parts}, status=200 if well else 503)
