"""What looking a token up costs a request, beside a bare round trip to the database.

    python benchmarks/tokens.py

Ends with a line of JSON: microseconds by the clock and of this process's processor time, and ratios.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "platform")]
os.environ["DJANGO_SETTINGS_MODULE"] = "assay.settings.test"

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402
from django.test.utils import setup_databases  # noqa: E402

from accounts.services import principal_of_token, team_default, token_authenticate, token_create  # noqa: E402

ROUNDS, TIMES = 20, 20


def microseconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """The fastest of several rounds: what else runs on the machine only ever adds."""
    rounds = []
    for _ in range(ROUNDS):
        started = clock()
        for _ in range(TIMES):
            call()
        rounds.append((clock() - started) / TIMES * 1e6)
    return min(rounds)


def round_trip() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def main() -> None:
    old = setup_databases(verbosity=0, interactive=False)
    _, secret = token_create(team=team_default(), name="bench", scopes=["score"])

    def look_up() -> None:
        token = token_authenticate(secret=secret)
        assert token is not None
        principal_of_token(token)

    look_up()
    figures = {}
    for name, clock in (("elapsed", time.perf_counter), ("processor", time.thread_time)):
        bare, found = microseconds(round_trip, clock), microseconds(look_up, clock)
        print(f"{name} time: look-up of a token {found:.0f} µs, a bare round trip {bare:.0f} µs")
        figures[name] = {"look_up_us": round(found), "round_trip_us": round(bare), "ratio": round(found / bare, 2)}
    connection.creation.destroy_test_db(old[0][1], verbosity=0)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
