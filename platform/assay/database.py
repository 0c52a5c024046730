"""What any process may ask of the database as a whole: why it cannot be reached, and a lock that only one holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper

RETRY_SECONDS: Final = 0.5


def unreachable(error: OperationalError) -> str:
    """A sentence for whoever has to repair it; the address's password is not in it."""
    server = urlsplit(settings.DATABASE_URL)
    why = str(error).strip().splitlines()[0].removeprefix("connection failed: ")
    return (
        f"DATABASE_URL names a PostgreSQL at {server.hostname or 'a local socket'}, port {server.port or 5432}, "
        f"which cannot be used: {why}. Start it or correct the address; with DATABASE_URL unset, Assay starts one."
    )


@contextlib.contextmanager
def only_one(key: int, *, wait: bool) -> Iterator[bool]:
    """Hold the advisory lock ``key`` while the block runs; without ``wait``, False where somebody else holds it.

    The lock belongs to a transaction on a connection of its own. One of the session would be left behind on some other
    connection of the server by a pooler in transaction mode, and then nobody could take it again.
    """
    holder = connection.copy()
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            # Waiting inside a statement would hold a snapshot, for whose end an index that is built concurrently waits:
            # under this very lock, it would wait for whoever waits for it.
            while not (taken := _taken(cursor, key)) and wait:
                time.sleep(RETRY_SECONDS)
        yield taken
    finally:
        holder.close()


def _taken(cursor: CursorWrapper, key: int) -> bool:
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [key])
    row = cursor.fetchone()
    return bool(row and row[0])
