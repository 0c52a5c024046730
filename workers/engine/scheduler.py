"""Continuous batching by token budget: everybody waiting gets a fair share of each micro-batch, interactive requests go
first.

No artificial wait: the micro-batch now running is the window in which the next one gathers. Requests that nobody waits
for any more are dropped when the next one is taken."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from workers.engine.config import EngineConfig
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.sequence import Prefix, Sequence, Work
from workers.engine.task_runner import TaskRunner
from workers.engine.types import Priority

_LEAST_TOKENS = 128  # the GEMMs of a model slow enough to be cut to so little still run at nearly their full speed
_FIRST_TOKENS = 512  # of a job whose model's pace nobody knows yet
_INTERACTIVE_IN_A_ROW = 8  # then one micro-batch for waiting batch work, so that no flood of requests starves a job


class Scheduler:
    """``admit`` at submission, ``add`` when prepared, ``next_batch`` on the runner thread, ``leave`` when answered."""

    def __init__(self, config: EngineConfig, on_departed: Callable[[Work, RequestCancelled], object]) -> None:
        self._config = config
        self._on_departed = on_departed
        self._queues: dict[Priority, deque[Work]] = {priority: deque() for priority in Priority}
        self._admitted: dict[Priority, dict[int, int]] = {priority: {} for priority in Priority}  # work key -> tokens
        self._changed = threading.Condition()
        self._paces: weakref.WeakKeyDictionary[TaskRunner, float] = weakref.WeakKeyDictionary()  # tokens per second
        self._interactive_run = 0
        self._closed = False

    def admit(self, work: Work) -> None:
        """Let a request in, or refuse it at once: what waits is bounded by count and by tokens."""
        config = self._config
        with self._changed:
            admitted = self._admitted[work.request.priority]
            tokens = sum(admitted.values()) + work.admitted_tokens
            full = len(admitted) >= config.max_waiting_requests or (admitted and tokens > config.max_waiting_tokens)
            if self._closed:
                raise EngineError("closed", "The engine is closed.")
            if full:
                raise EngineError(
                    "overloaded",
                    f"{len(admitted)} {work.request.priority.name.lower()} requests with about "
                    f"{sum(admitted.values())} tokens are waiting, the limits are {config.max_waiting_requests} and "
                    f"{config.max_waiting_tokens}. Try again shortly.",
                )
            admitted[work.key] = work.admitted_tokens

    def leave(self, work: Work) -> bool:
        """Out of the waiting room; False if it had left before, so that only one caller answers."""
        with self._changed:
            return self._admitted[work.request.priority].pop(work.key, None) is not None

    def add(self, work: Work) -> None:
        with self._changed:
            self._queues[work.request.priority].append(work)
            self._changed.notify()

    def close(self) -> list[Work]:
        """Wake the runner for the last time; returns what was still waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return self._withdraw(lambda work: True)

    def withdraw(self, wanted: Callable[[Work], bool]) -> list[Work]:
        """Take waiting works out of the queue; their sequences will not run."""
        with self._changed:
            return self._withdraw(wanted)

    def next_batch(self) -> list[Sequence]:
        """Block until there is work; one model's sequences within the budget. Empty once closed."""
        while True:
            with self._changed:
                while not self._closed and not any(self._queues.values()):
                    self._changed.wait()
                if self._closed:
                    return []
                now = time.monotonic()
                departed = [
                    (work, reason)
                    for queue in self._queues.values()
                    for work in queue
                    if (reason := work.departure(now))
                ]
                self._withdraw({work for work, _ in departed}.__contains__)
                batch = self._take()
            for work, reason in departed:
                self._on_departed(work, reason)
            if batch:
                return batch

    def note_pace(self, task: TaskRunner, tokens: int, seconds: float) -> None:
        """What a micro-batch of this model took; the next ones are cut by it."""
        if tokens >= _LEAST_TOKENS and seconds > 0:  # small ones say more about overhead than about speed
            with self._changed:
                before = self._paces.get(task, tokens / seconds)
                self._paces[task] = 0.5 * (before + tokens / seconds)

    def waiting(self) -> tuple[int, int]:
        """Requests in the queue and the tokens they still bring."""
        with self._changed:
            works = [work for queue in self._queues.values() for work in queue]
            return len(works), sum(sequence.cost for work in works for sequence in work.pending)

    @property
    def in_flight(self) -> int:
        with self._changed:
            return sum(len(admitted) for admitted in self._admitted.values())

    def _withdraw(self, wanted: Callable[[Work], bool]) -> list[Work]:
        taken = []
        for priority, queue in self._queues.items():
            taken += [work for work in queue if wanted(work)]
            self._queues[priority] = deque(work for work in queue if not wanted(work))
        for work in taken:
            work.pending.clear()
        return taken

    def _take(self) -> list[Sequence]:
        turn = self._turn()
        queue = self._queues[turn]
        if not queue:
            return []
        task = queue[0].task
        together = deque(work for work in queue if work.task is task)
        if task.reserved_bytes > self._config.reservation_bytes:  # what has begun gives back what it holds first
            together = deque([work for work in together if work.started] or [together[0]])
        tokens = self._tokens_for(task, turn)
        budget = _Budget(tokens, self._config.max_batch_square)
        share = max(1, tokens // len(together))
        batch: list[Sequence] = []
        served: dict[Work, None] = {}  # in the order of the last time
        while together:
            work = together.popleft()
            taken, complete = _take_share(work, share, budget)
            batch += taken
            if taken:
                served.pop(work, None)
                served[work] = None
                if work.pending and complete:
                    together.append(work)
        # Whoever was served goes behind those who were not.
        rest = [work for work in queue if work not in served]
        self._queues[turn] = deque((*rest, *(work for work in served if work.pending)))
        return batch

    def _tokens_for(self, task: TaskRunner, turn: Priority) -> int:
        config, pace = self._config, self._paces.get(task)
        if pace is None:
            return min(config.max_batch_tokens, _FIRST_TOKENS) if turn is Priority.BATCH else config.max_batch_tokens
        seconds = config.background_batch_seconds if turn is Priority.BATCH else config.batch_seconds
        return min(config.max_batch_tokens, max(_LEAST_TOKENS, int(pace * seconds)))

    def _turn(self) -> Priority:
        interactive, batch = (bool(self._queues[priority]) for priority in (Priority.INTERACTIVE, Priority.BATCH))
        if interactive and (not batch or self._interactive_run < _INTERACTIVE_IN_A_ROW):
            self._interactive_run += 1
            return Priority.INTERACTIVE
        self._interactive_run = 0
        return Priority.BATCH


class _Budget:
    """What is left of one micro-batch. The first sequence always fits: an oversized one goes alone."""

    def __init__(self, tokens: int, square: int) -> None:
        self.tokens = tokens
        self.square = square
        self._prefixes: set[Prefix] = set()
        self._started = False

    def cost(self, sequence: Sequence) -> int:
        new = (each for each in sequence.chain if not (each.kept or each.hot) and each not in self._prefixes)
        return sequence.cost + sum(len(prefix.token_ids) for prefix in new)

    def fits(self, sequence: Sequence) -> bool:
        return not self._started or (self.cost(sequence) <= self.tokens and sequence.square <= self.square)

    def spend(self, sequence: Sequence) -> int:
        cost = self.cost(sequence)
        self.tokens -= cost
        self.square -= sequence.square
        self._started = True
        self._prefixes.update(sequence.chain)
        if sequence.fills is not None:
            self._prefixes.add(sequence.fills)
        return cost


def _take_share(work: Work, share: int, budget: _Budget) -> tuple[list[Sequence], bool]:
    """Up to ``share`` tokens of one work, in its order; False when the budget, not the share, was the limit."""
    taken: list[Sequence] = []
    spent = 0
    while work.pending and spent < share:
        if not budget.fits(work.pending[0]):
            return taken, False
        sequence = work.pending.popleft()
        spent += budget.spend(sequence)
        taken.append(sequence)
    return taken, True
