"""From the parts of one synchronous request to their replies: what is late is asked again elsewhere, once.

One thread waits for all parts. Whatever ends the waiting, an answer, a refusal or an error of ours, leaves nothing
behind: the parts still out are called off. A part that was asked again has a new reply key, and nobody listens to
the old one any more, so an answer that comes twice is never seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from assay.callers import Caller
from assay.errors import AssayError
from scoring.dispatch import (
    Left,
    Taken,
    Target,
    answer_pop,
    call_end,
    call_send,
    call_taken,
    callers_leave,
    callers_stay,
    no_worker,
    queue_needed,
    worker_queue,
)
from scoring.payloads import SyncReply, SyncRequest

LOOK_SECONDS: Final = 1.0  # between two looks at who is alive; also the beat of the callers' marks
WARM_SECONDS: Final = 3.0  # from the news that a worker is ready until it takes what waits
TRIES: Final = 2
# The worker did nothing and says so: it stops, or holds the model no longer.
ELSEWHERE: Final = frozenset({"shutting_down", "closed", "model_not_loaded", "model_unloaded", "caller_left"})


@dataclass(eq=False, slots=True)
class Part:
    """A share of the request (all of it, if it was not split) and where it went. ``documents``: their places in the
    order submitted."""

    call: SyncRequest
    target: Target
    documents: Sequence[int] = ()
    cold: bool = False  # waits in the model's queue until some worker has loaded the model
    tries: int = 0
    sent_at: float = 0.0  # time.monotonic()
    asked: set[str] = field(default_factory=set)  # queues it went to
    taken: Taken | None = None
    reply: SyncReply | None = None


class Router(Protocol):
    """Knows the model's workers."""

    def elsewhere(self, part: Part) -> None:
        """Point ``part`` at another queue. Raises AssayError when there is none."""

    def cold_over(self) -> bool:
        """Whether a worker is ready now. Raises AssayError when none will be."""

    def alive(self, taken: Taken) -> bool: ...


@dataclass(slots=True)
class Gathering:
    """``timeout_seconds`` counts from the moment at which a worker is ready; what passed before is ``cold_seconds``.
    ``stay`` is called every LOOK_SECONDS while nothing is heard. ``caller``: for whom; when it leaves, so does the
    work."""

    parts: Sequence[Part]
    router: Router
    timeout_seconds: float
    stay: Callable[[], None]
    caller: Caller = field(default_factory=Caller)
    retries: int = 0
    cold_seconds: float = 0.0
    _give_up: float = 0.0

    def run(self) -> list[SyncReply]:
        """The replies, part by part; or one alone, the first that refuses.

        Raises AssayError 503 ``no_worker`` / ``worker_lost`` / ``queue_unavailable``, 504 ``deadline_exceeded``, 499
        ``client_left``.
        """
        self._give_up = time.monotonic() + self.timeout_seconds
        with queue_needed(), self.caller.watched(self._caller_left):
            try:
                for part in self.parts:
                    self._send(part)
                while waiting := [part for part in self.parts if part.reply is None]:
                    refusal = self._hear(waiting)
                    if refusal is not None:
                        return [refusal]
                return [part.reply for part in self.parts if part.reply is not None]
            finally:
                for part in self.parts:
                    self._end(part)

    def _caller_left(self) -> None:
        """In another thread than that which waits, which is woken so."""
        callers_leave([part.call for part in self.parts if part.call.reply_key])

    def _send(self, part: Part) -> None:
        if self.caller.left:
            raise _left()
        part.tries, part.taken, part.sent_at = part.tries + 1, None, time.monotonic()
        patience = part.target.patience if part.cold else 0.0
        left = self._give_up - part.sent_at
        if left <= 0:
            raise self._late(part)
        part.asked.add(part.target.queue)
        part.call = call_send(part.call, part.target, seconds=patience + left)

    def _end(self, part: Part) -> None:
        if part.call.reply_key and (part.reply is None or part.taken is not None):
            call_end(part.call, part.target.queue, *([worker_queue(part.taken.worker_id)] if part.taken else ()))

    def _hear(self, waiting: list[Part]) -> SyncReply | None:
        """Wait for one word and act on it, or on its absence. Returns a reply that refuses."""
        now = time.monotonic()
        until = min(self._until(part) for part in waiting)
        heard = answer_pop([part.call for part in waiting], min(until - now, LOOK_SECONDS))
        if heard is None:
            self._look(waiting)
            return None
        part, word = waiting[heard[0]], heard[1]
        if isinstance(word, Left):
            raise _left()
        if part.cold:
            self._warm(part)
        if isinstance(word, Taken):
            self._taken(part, word)
        elif word.error_code in ELSEWHERE and part.tries < TRIES:
            self._again(part)
        elif word.error_code:
            return word
        else:
            part.reply = word
        return None

    def _until(self, part: Part) -> float:
        if part.taken is not None:
            return self._give_up
        patient = part.sent_at + part.target.patience
        return patient if part.cold else min(patient, self._give_up)

    def _taken(self, part: Part, taken: Taken) -> None:
        part.taken = taken
        if part.target.queue != worker_queue(taken.worker_id):
            call_taken(part.call, part.target.queue, worker_queue(taken.worker_id))

    def _warm(self, part: Part) -> None:
        part.cold, now = False, time.monotonic()
        self.cold_seconds, self._give_up = now - part.sent_at, now + self.timeout_seconds

    def _look(self, waiting: list[Part]) -> None:
        """Nothing was heard for a while: say that we wait, and see who still can answer."""
        if self.caller.left:
            raise _left()
        callers_stay([part.call for part in waiting])
        self.stay()
        now = time.monotonic()
        for part in waiting:
            if part.taken is not None:
                if now >= self._give_up:
                    raise self._late(part)
                if not self.router.alive(part.taken):
                    self._again(part, lost=True)
            elif now >= self._until(part):
                if not part.cold and now >= self._give_up:
                    raise self._late(part)
                self._again(part)
            elif part.cold and self.router.cold_over():
                self._warm(part)
                # A worker that became ready looks into the model's queue soon; a message that got lost is sent again.
                part.target = replace(part.target, patience=self.cold_seconds + WARM_SECONDS)

    def _again(self, part: Part, *, lost: bool = False) -> None:
        self._end(part)
        if part.tries >= TRIES:
            raise _worker_lost(part) if lost else _not_taken(part)
        self.retries += 1
        self.router.elsewhere(part)
        self._send(part)

    def _late(self, part: Part) -> AssayError:
        return AssayError(
            "deadline_exceeded",
            f"Model '{part.call.model_name}' did not answer within {self.timeout_seconds:g} s. "
            "Send fewer or shorter documents, or a larger X-Timeout-Ms.",
            status=504,
        )


def _left() -> AssayError:
    return AssayError("client_left", "The client hung up before its answer.", status=499)


def _not_taken(part: Part) -> AssayError:
    return no_worker(part.call.model_name, "no worker took the request in time", queue=part.target.queue)


def _worker_lost(part: Part) -> AssayError:
    return AssayError(
        "worker_lost",
        f"The workers that took the request for model '{part.call.model_name}' ended before they answered; send it "
        "again shortly.",
        status=503,
        retry_after=5,
        extra={"model": part.call.model_name, "queue": part.target.queue},
    )
