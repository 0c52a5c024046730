"""What quotas add to a request, beside one round trip to the same Redis.

    python benchmarks/quotas.py [ROUNDS]

Starts servers of its own, as the tests do, unless REDIS_URL names one. Token and team have every quota, the most that a
request can meet. Prints median microseconds, and the ratio to a PING.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from statistics import median

import django


def microseconds(act: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e6


def main(rounds: int) -> None:
    from accounts.models import ApiToken, Team
    from accounts.quotas import COUNTED, KEYS
    from accounts.scopes import ALL_SCOPES
    from assay.api.principal import Principal
    from scoring import dispatch
    from scoring.services.admission import admitted

    free = Principal(user=None, team=Team(pk=-1), token=ApiToken(pk=-1), scopes=ALL_SCOPES)
    limits = dict.fromkeys(COUNTED, 1_000_000_000)
    limited = Principal(user=None, team=Team(pk=-2, **limits), token=ApiToken(pk=-2, **limits), scopes=ALL_SCOPES)

    def admit(principal: Principal) -> None:
        with admitted(principal=principal, documents=100) as admission:
            admission.scored = 100

    redis = dispatch.connection()
    ping = microseconds(redis.ping, rounds)
    without, with_all = (microseconds(lambda who=who: admit(who), rounds) for who in (free, limited))
    print(f"{rounds:,} rounds, {os.cpu_count()} cores; microseconds, and in PINGs")
    for name, value in (("PING", ping), ("no quota", without), ("six quotas, in and out", with_all)):
        print(f"{name:24}{value:8.0f}{value / ping:8.1f}")
    redis.delete(*redis.scan_iter(f"{KEYS}*:-2*"))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.test")
    django.setup()
    main(int((sys.argv[1:2] or ["2000"])[0]))
