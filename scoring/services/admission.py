"""Who may score now: the quotas of the token and its team hold a place for the request while it is answered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from accounts.quotas import Reservation, quotas_extend, quotas_release, quotas_reserve
from assay.api.principal import Principal
from scoring import dispatch

logger = logging.getLogger(__name__)

LEASE_SECONDS = dispatch.CALLER_TTL_SECONDS  # the hold of a killed process ends when its marks as a caller do


@dataclass(slots=True)
class Admission:
    """The block sets ``scored``, the documents that came to be scored; until then that is none."""

    reservation: Reservation | None
    scored: int = 0

    def stay(self) -> None:
        """Somebody still waits for the answer. Call it every second or two. Raises redis.RedisError."""
        if self.reservation is not None:
            quotas_extend(dispatch.connection(), reservation=self.reservation, lease_seconds=LEASE_SECONDS)

    def headers(self) -> dict[str, str]:
        """Of the answer: how far the tightest quota is used. None without quotas."""
        tightest = self.reservation.tightest(self.scored) if self.reservation else None
        return tightest.headers() if tightest else {}


@contextmanager
def admitted(*, principal: Principal, documents: int) -> Iterator[Admission]:
    """Hold one request and ``documents`` of every quota while the block answers it, and says so by ``stay``.

    However the block ends, the request is no longer in flight afterwards and only ``scored`` documents count; that it
    was made counts in any case. Should this process be killed, the hold ends by itself within LEASE_SECONDS. Without
    quotas nothing is asked of Redis.

    Raises AssayError 429 ``quota_exceeded``; 503 ``queue_unavailable`` when nobody can tell how much is used.
    """
    with dispatch.queue_needed():
        reservation = quotas_reserve(
            dispatch.connection(), principal=principal, documents=documents, lease_seconds=LEASE_SECONDS
        )
    admission = Admission(reservation)
    try:
        yield admission
    finally:
        if reservation is not None:
            _release(reservation, admission.scored)


def _release(reservation: Reservation, scored: int) -> None:
    """An answer that is there is given, though Redis went away meanwhile: the lease ends by itself."""
    try:
        quotas_release(dispatch.connection(), reservation=reservation, documents_used=scored)
    except redis.RedisError as error:
        logger.warning("a quota was not settled: the message queue does not answer (%s)", type(error).__name__)
