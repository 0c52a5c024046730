"""Calls of one remote model: JSON over the guarded client, with retries, and a breaker between them and the server."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings

from assay.outgoing import Answer, OutgoingError, outgoing
from workers.engine.errors import EngineError
from workers.remote.breaker import Breaker
from workers.remote.spec import RemoteSpec

logger = logging.getLogger(__name__)

TRIES: Final = 3
FIRST_WAIT: Final = 0.3  # seconds before the second try; doubled, with jitter
LONGEST_WISH: Final = 10.0  # seconds of Retry-After that are heeded within a call
LEASE_SHARE: Final = 0.5  # of a lease, for one try: whoever waits for it must live to say so
MAX_ANSWER: Final = 64 << 20
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
NOT_FOR_US: Final = frozenset({401, 402, 403, 404, 405})  # whatever the texts are


class RemoteUnavailable(EngineError):
    """Nobody's texts are at fault: the server is not to be had now."""

    def __init__(self, message: str) -> None:
        super().__init__("remote_unavailable", message)


class Connection:
    def __init__(self, spec: RemoteSpec, breaker: Breaker, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._spec = spec
        self._breaker = breaker
        self._pause = pause

    def post(self, path: str, body: dict[str, Any], *, deadline: float | None, tried: Callable[[], object]) -> Any:
        """The answer's JSON. ``deadline``: time.monotonic(); ``tried`` is called after every try.

        Raises RemoteUnavailable; EngineError ``remote_refused`` when the server will not have these texts, or answers
        what is no answer.
        """
        if why := self._breaker.admit():
            raise RemoteUnavailable(why)
        answer, problem, for_good = self._answer(path, body, deadline, tried)
        if problem:
            self._breaker.failed(problem, for_good=for_good)
            raise RemoteUnavailable(problem)
        assert answer is not None
        self._breaker.succeeded()
        if not 200 <= answer.status < 300:
            raise EngineError(
                "remote_refused",
                f"{self._spec.who} refused the texts with status {answer.status}. Shorten them, or look into its log.",
            )
        try:
            return json.loads(answer.content)
        except ValueError as error:
            raise refused(self._spec, "no JSON") from error

    def _answer(
        self, path: str, body: dict[str, Any], deadline: float | None, tried: Callable[[], object]
    ) -> tuple[Answer | None, str, bool]:
        """The answer; or why there is none, and whether that will stay so."""
        content = json.dumps(body).encode()
        problem = "the deadline came first."
        longest = LEASE_SHARE * settings.LEASE_SECONDS
        for number in range(TRIES):
            seconds = longest if deadline is None else min(longest, deadline - time.monotonic())
            if seconds <= 0:
                break
            wish = 0.0
            try:
                answer = outgoing(listed_only=True).request(
                    "POST",
                    self._spec.endpoint.rstrip("/") + path,
                    content=content,
                    headers=self._headers(),
                    timeout=seconds,
                    max_bytes=MAX_ANSWER,
                )
            except OutgoingError as error:
                problem = str(error)
                if error.code not in ("unreachable", "timeout"):
                    return None, f"{self._spec.who} cannot be used: {problem}", True
            else:
                if answer.status in NOT_FOR_US:
                    why = f"{self._spec.who} answered {answer.status}; check its address, its model and the credential."
                    return None, why, True
                if answer.status not in PASSING:
                    tried()
                    return answer, "", False
                problem = f"it answered {answer.status}."
                given = answer.headers.get("retry-after", "")
                wish = float(given) if given.isascii() and given.isdecimal() else 0.0
            tried()
            if number + 1 < TRIES:
                wait = FIRST_WAIT * 2**number * random.uniform(0.5, 1.5)
                self._pause(max(wait, min(wish, LONGEST_WISH)))
        return None, f"{self._spec.who} is not to be had: {problem}", False

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "assay"}
        if self._spec.credential:
            host, secret = settings.REMOTE_CREDENTIALS.get(self._spec.credential, ("", ""))
            if host == outgoing(listed_only=True).check(self._spec.endpoint).authority:
                headers["Authorization"] = f"Bearer {secret}"
        return headers


def refused(spec: RemoteSpec, what: str) -> EngineError:
    return EngineError("remote_refused", f"{spec.who} answered {what}, which is no answer to what it was asked.")
