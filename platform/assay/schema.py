"""Are the tables those that this release needs? More than it needs is fine: a newer release may share the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Final

from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from assay.database import unreachable

LOOK_SECONDS: Final = 1.0
SAY_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


@cache
def _needed() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).disk_migrations)


def migrations_missing() -> list[str]:
    """The migrations of this release that the database lacks, as ``app.name``."""
    applied = MigrationRecorder(connection).applied_migrations()
    return sorted(f"{app}.{name}" for app, name in _needed() - applied.keys())


def schema_problem() -> str | None:
    """Why this release cannot work on this database; None where it can."""
    try:
        missing = migrations_missing()
    except OperationalError as error:
        connection.close()
        return unreachable(error)
    if missing:
        named = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        return f"{len(missing)} migrations are not applied to the database ({named}); run `manage.py migrate`."
    return None


def schema_wait(*, stopped: Callable[[], bool]) -> bool:
    """Return True as soon as the database is fit for this release, False when ``stopped`` says so first.

    In an upgrade a process may start before the migration has run: it waits and says so, rather than to end and be
    started again and again.
    """
    say_at = 0.0
    while not stopped():
        problem = schema_problem()
        if problem is None:
            return True
        if time.monotonic() >= say_at:
            logger.warning("waiting for the database: %s", problem)
            say_at = time.monotonic() + SAY_SECONDS
        time.sleep(LOOK_SECONDS)
    return False
