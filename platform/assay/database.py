"""What any process may ask of the database as a whole: why it cannot be reached, and a lock that only one holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.db import OperationalError, connection


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
            if wait:
                cursor.execute("SELECT true FROM pg_advisory_xact_lock(%s)", [key])
            else:
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [key])
            row = cursor.fetchone()
        yield bool(row and row[0])
    finally:
        holder.close()
