"""Quotas of synchronous requests, counted in Redis: reserved all together or not at all, settled at the end.

Per holder (a token, its team) there is a hash of counters with the ends of their windows, and a sorted set of requests
in flight by the end of their leases. Both live on Redis's clock. A minute begins with its first request, a day at
midnight UTC. What a killed process held ends by its lease; what it had counted stays counted until its window ends.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import redis
from prometheus_client import Counter

from accounts.limits import Quota, QuotaLimits
from assay.errors import AssayError
from assay.metrics import registry

if TYPE_CHECKING:
    from assay.api.principal import Principal

COUNTED: Final = (Quota.REQUESTS, Quota.DOCUMENTS, Quota.IN_FLIGHT)
WINDOWS: Final = {Quota.REQUESTS: 60, Quota.DOCUMENTS: 86_400}
KEYS: Final = "assay:quota:"
IN_FLIGHT_RETRY_SECONDS: Final = 1
PAIRS_RETRY_SECONDS: Final = 30

# KEYS: of each holder its counters and its leases. ARGV: the reservation, its documents, the seconds of its lease, then
# of each holder the limits in the order of COUNTED, -1 for none. Returns as JSON, which is
# quicker to read than a reply of many parts: whether it was reserved, the time, and of each limit: holder, place in
# COUNTED, used before, until.
_RESERVE: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local ends = {now + 60, (math.floor(now / 86400) + 1) * 86400}
local asked = {1, tonumber(ARGV[2]), 1}
local names = {'requests_per_minute', 'documents_per_day'}
local found, free = {}, 1
for holder = 1, #KEYS / 2 do
  local counters, leases = KEYS[holder * 2 - 1], KEYS[holder * 2]
  for quota = 1, 3 do
    local limit = tonumber(ARGV[3 * holder + quota])
    if limit >= 0 then
      local used, till
      if quota == 3 then
        redis.call('ZREMRANGEBYSCORE', leases, '-inf', now)
        used = redis.call('ZCARD', leases)
        till = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or now)
      else
        used = tonumber(redis.call('HGET', counters, names[quota]) or 0)
        till = tonumber(redis.call('HGET', counters, names[quota] .. ':until') or 0)
        if till <= now then used, till = 0, ends[quota] end
      end
      if used + asked[quota] > limit then free = 0 end
      found[#found + 1] = {holder, quota, used, tostring(till)}
    end
  end
end
if free == 1 then
  for _, row in ipairs(found) do
    local counters, leases = KEYS[row[1] * 2 - 1], KEYS[row[1] * 2]
    if row[2] == 3 then
      redis.call('ZADD', leases, now + tonumber(ARGV[3]), ARGV[1])
      redis.call('EXPIRE', leases, 86400)
    else
      local name = names[row[2]]
      redis.call('HSET', counters, name, row[3] + asked[row[2]], name .. ':until', row[4])
      redis.call('EXPIRE', counters, 172800)
    end
  end
end
return cjson.encode({free, now, found})
"""
# KEYS as above. ARGV: the reservation, the documents that it gives back, the end of the day in which it took them.
_RELEASE: Final = """
for place = 1, #KEYS, 2 do
  redis.call('ZREM', KEYS[place + 1], ARGV[1])
  if ARGV[2] ~= '0' and redis.call('HGET', KEYS[place], 'documents_per_day:until') == ARGV[3] then
    redis.call('HINCRBY', KEYS[place], 'documents_per_day', '-' .. ARGV[2])
  end
end
"""

# KEYS as above. ARGV: the reservation, the seconds of its lease from now on. What was not in flight does not come back.
_EXTEND: Final = """
local time = redis.call('TIME')
for place = 2, #KEYS, 2 do
  redis.call('ZADD', KEYS[place], 'XX', tonumber(time[1]) + tonumber(ARGV[2]), ARGV[1])
end
"""

admissions = Counter("assay_admissions", "Requests that every quota admitted.", registry=registry)
refusals = Counter(
    "assay_quota_refusals", "Requests and jobs over a quota, by quota and whose it is.", ["quota", "of"],
    registry=registry,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QuotaState:
    """How far one quota is used. ``reset``: seconds until its window ends (of requests in flight: until the first one's
    lease does); None for what ends when jobs end."""

    of: str  # token | team
    quota: Quota
    limit: int
    used: int
    reset: float | None

    @property
    def remaining(self) -> int:
        return max(self.limit - self.used, 0)

    def headers(self) -> dict[str, str]:
        headers = {
            "X-RateLimit-Quota": f"{self.of}/{self.quota}",
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
        }
        return headers if self.reset is None else {**headers, "X-RateLimit-Reset": str(math.ceil(self.reset))}


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one request holds of its quotas. ``states`` count it in."""

    id: str
    keys: Sequence[str]
    documents: int
    day_end: str
    states: Sequence[QuotaState]

    def tightest(self, documents_used: int) -> QuotaState | None:
        """The quota of which the smallest share is left when this request, the last one counted, has ended."""
        back = {Quota.REQUESTS: 0, Quota.DOCUMENTS: self.documents - documents_used, Quota.IN_FLIGHT: 1}
        ended = [replace(state, used=state.used - back[state.quota]) for state in self.states]
        return min(ended, key=lambda state: state.remaining / max(state.limit, 1), default=None)


def quotas_reserve(
    client: redis.Redis, *, principal: Principal, documents: int, lease_seconds: float
) -> Reservation | None:
    """Take one request and ``documents`` from all quotas of the token and the team at once. None: there are no quotas.

    What the request holds in flight ends after ``lease_seconds``, if nobody released it before.

    Raises AssayError 429 ``quota_exceeded``, and nothing was taken; redis.RedisError when nobody can tell.
    """
    holders: dict[str, QuotaLimits] = {"token": principal.token} if principal.token else {}
    holders["team"] = principal.team
    limits = {of: found for of, row in holders.items() if (found := _limits(row))}
    if not limits:
        admissions.inc()
        return None
    reservation = uuid.uuid4().hex
    keys = [f"{KEYS}{of}:{holders[of].pk}{what}" for of in limits for what in ("", ":in-flight")]
    asked = [limits[of].get(quota, -1) for of in limits for quota in COUNTED]
    told: Any = _script(client, _RESERVE)(keys, [reservation, documents, lease_seconds, *asked])
    free, now, found = json.loads(told)
    names, day_end = list(limits), ""
    states: list[QuotaState] = []
    for holder, place, used, until in found:
        of, quota = names[holder - 1], COUNTED[place - 1]
        if quota == Quota.DOCUMENTS:
            day_end = until
        taken = free * (documents if quota == Quota.DOCUMENTS else 1)
        states.append(QuotaState(of, quota, limits[of][quota], used + taken, float(until) - now))
    if not free:
        raise _refused(states, documents)
    admissions.inc()
    return Reservation(reservation, keys, documents, day_end, states)


def quotas_extend(client: redis.Redis, *, reservation: Reservation, lease_seconds: float) -> None:
    """The request is still in flight."""
    if any(state.quota == Quota.IN_FLIGHT for state in reservation.states):
        _script(client, _EXTEND)(reservation.keys, [reservation.id, lease_seconds])


def quotas_release(client: redis.Redis, *, reservation: Reservation, documents_used: int) -> None:
    """The request has ended: it is no longer in flight, and of its documents only ``documents_used`` count."""
    unused = reservation.documents - documents_used if reservation.day_end else 0
    _script(client, _RELEASE)(reservation.keys, [reservation.id, unused, reservation.day_end])


@cache
def _script(client: redis.Redis, text: str) -> Any:
    return client.register_script(text)


def over_quota(state: QuotaState, *, asked: int, noun: str) -> AssayError:
    """429 ``quota_exceeded`` that says which quota, how far it is used, and when there will be more; 413 for more than
    the quota ever gives, 403 if that is nothing, both without ``Retry-After``."""
    refusals.labels(state.quota, state.of).inc()
    window = WINDOWS.get(state.quota)
    status, retry_after = 429, math.ceil(state.reset or 0) if window else IN_FLIGHT_RETRY_SECONDS
    if state.quota == Quota.PAIRS:
        retry_after = PAIRS_RETRY_SECONDS
    when = f"Send it again in {retry_after:,} s." if window else "Wait until some have ended."
    if asked > state.limit:  # and so for ever
        status, when = (413, "Split it, or ask") if state.limit else (403, "Ask")
        when += " an administrator for a larger quota."
    return AssayError(
        "quota_exceeded",
        f"This {noun} needs {asked:,} {state.quota.label}; of the {state.limit:,} that this {state.of} may have, "
        f"{state.used:,} are used. {when}",
        status=status,
        retry_after=retry_after if status == 429 else None,
        headers=state.headers(),
        extra={
            "quota": state.quota.value,
            "of": state.of,
            "window": window,
            "limit": state.limit,
            "used": state.used,
            "asked": asked,
            "reset": None if state.reset is None else math.ceil(state.reset),
        },
    )


def _refused(states: Sequence[QuotaState], documents: int) -> AssayError:
    """Of several quotas that are used up, the one that takes longest to have room again."""

    def asked(state: QuotaState) -> int:
        return documents if state.quota == Quota.DOCUMENTS else 1

    full = [state for state in states if state.used + asked(state) > state.limit]
    longest = max(full, key=lambda state: (asked(state) > state.limit, state.quota in WINDOWS, state.reset or 0))
    return over_quota(longest, asked=asked(longest), noun="request")


def _limits(row: QuotaLimits) -> dict[Quota, int]:
    return {quota: limit for quota in COUNTED if (limit := getattr(row, quota)) is not None}
