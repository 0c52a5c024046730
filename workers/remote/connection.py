"""Calls of one remote model: JSON over the guarded client, with retries, and a breaker between them and the server."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from django.conf import settings

from assay.outgoing import Answer, OutgoingError, outgoing
from workers.counters import Counters
from workers.engine.errors import EngineError, RequestCancelled
from workers.remote.breaker import Breaker
from workers.remote.spec import RemoteSpec

TRIES: Final = 3
TRIES_OF_FAULTS: Final = 2  # of status 500, which comes again where the texts are at fault
FIRST_WAIT: Final = 0.3  # seconds before the second try; doubled, with jitter
LONGEST_WISH: Final = 10.0  # seconds of Retry-After that are waited within a call; longer ones open the breaker
LEASE_SHARE: Final = 0.5  # of a lease, for one try: whoever waits for it must live to say so
FAIR_SECONDS: Final = 5.0  # a server that had less before a deadline came has not failed
MAX_ANSWER: Final = 64 << 20
FAULT: Final = 500
PASSING: Final = frozenset({408, 425, 429})  # and every 5xx but a fault
NOT_FOR_US: Final = frozenset({401, 402, 403, 404, 405})  # whatever the texts are


class RemoteUnavailable(EngineError):
    """Nobody's texts are at fault: the server is not to be had now."""

    def __init__(self, message: str) -> None:
        super().__init__("remote_unavailable", message)


class TextsRefused(EngineError):
    """The server is there, and will not have these texts."""

    def __init__(self, spec: RemoteSpec, status: int) -> None:
        super().__init__(
            "remote_refused",
            f"{spec.who} refused the texts with status {status}. Shorten them, or look into its log.",
        )
        self.status = status


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no answer. ``for_good``: no retry can help; ``pause``: seconds that the server wants to be left
    alone; ``ours``: it had no time to answer."""

    cause: str
    for_good: bool = False
    pause: float = 0.0
    ours: bool = False


class Connection:
    def __init__(self, spec: RemoteSpec, breaker: Breaker, *, pause: Callable[[float], object] = time.sleep) -> None:
        self.counts = Counters()
        self._spec = spec
        self._breaker = breaker
        self._pause = pause

    def post(
        self,
        path: str,
        body: dict[str, Any],
        *,
        deadline: float | None,
        tried: Callable[[], object],
        admitted: bool = False,
    ) -> Any:
        """The answer's JSON. ``deadline``: time.monotonic(); ``tried`` is called after every try; ``admitted``: the
        breaker let a call of the same request through, whose answer left open how the server is.

        Raises RemoteUnavailable; TextsRefused, which says nothing to the breaker; EngineError ``remote_refused`` for
        what is no answer; RequestCancelled when the deadline comes before the server had a fair time.
        """
        if not admitted and (why := self._breaker.admit()):
            self.counts.add("held_back")
            raise RemoteUnavailable(why)
        got = self._answer(path, body, deadline, tried)
        if isinstance(got, Trouble):
            if got.ours:
                raise RequestCancelled("deadline_exceeded", f"{self._spec.who} had no time left to answer.")
            self.counts.add("unavailable")
            raise self.failed(got)
        if not 200 <= got.status < 300:
            self.counts.add("refused")
            raise TextsRefused(self._spec, got.status)
        self._breaker.succeeded()
        self.counts.add("answered")
        try:
            return json.loads(got.content)
        except ValueError as error:
            raise refused(self._spec, "no JSON") from error

    def failed(self, trouble: Trouble) -> RemoteUnavailable:
        """Tells the breaker; what to raise."""
        self._breaker.failed(trouble.cause, for_good=trouble.for_good, pause=trouble.pause)
        return RemoteUnavailable(trouble.cause)

    def _answer(
        self, path: str, body: dict[str, Any], deadline: float | None, tried: Callable[[], object]
    ) -> Answer | Trouble:
        """An answer that concerns the texts, good or bad, or why there is none."""
        content = json.dumps(body).encode()
        longest = LEASE_SHARE * settings.LEASE_SECONDS
        problem, ours = "the deadline came first.", True
        for number in range(TRIES):
            seconds = longest if deadline is None else min(longest, deadline - time.monotonic())
            if seconds <= 0:
                break
            wish, started = 0.0, time.monotonic()
            try:
                answer = outgoing(listed_only=True).request(
                    "POST",
                    self._spec.endpoint.rstrip("/") + path,
                    content=content,
                    headers=self._headers(),
                    timeout=seconds,
                    max_bytes=MAX_ANSWER,
                    repeatable=True,
                )
            except OutgoingError as error:
                if error.code not in ("unreachable", "timeout"):
                    return Trouble(f"{self._spec.who} cannot be used: {error}", for_good=True)
                problem, ours = str(error), error.code == "timeout" and seconds < min(longest, FAIR_SECONDS)
            else:
                if answer.status in NOT_FOR_US:
                    why = f"{self._spec.who} answered {answer.status}; check its address, its model and the credential."
                    return Trouble(why, for_good=True)
                last_fault = answer.status == FAULT and number + 1 >= TRIES_OF_FAULTS
                if last_fault or (answer.status < FAULT and answer.status not in PASSING):
                    tried()
                    return answer
                problem, ours = f"it answered {answer.status}.", False
                wish = seconds_wished(answer.headers.get("retry-after", ""))
            finally:
                self.counts.add("seconds", time.monotonic() - started)
            tried()
            if wish > LONGEST_WISH:
                return Trouble(f"{self._spec.who} is not to be had: {problem}", pause=wish)
            if number + 1 < TRIES:
                self.counts.add("retried")
                self._pause(max(FIRST_WAIT * 2**number * random.uniform(0.5, 1.5), wish))
        return Trouble(f"{self._spec.who} is not to be had: {problem}", ours=ours)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "assay"}
        if self._spec.credential:
            host, secret = settings.REMOTE_CREDENTIALS.get(self._spec.credential, ("", ""))
            if host == outgoing(listed_only=True).check(self._spec.endpoint).authority:
                headers["Authorization"] = f"Bearer {secret}"
        return headers


def refused(spec: RemoteSpec, what: str) -> EngineError:
    return EngineError("remote_refused", f"{spec.who} answered {what}, which is no answer to what it was asked.")


def seconds_wished(retry_after: str) -> float:
    """What a Retry-After says, be it seconds or a moment; 0 if it says nothing."""
    if retry_after.isascii() and retry_after.isdecimal():
        return float(retry_after[:9])
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    return max((moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
