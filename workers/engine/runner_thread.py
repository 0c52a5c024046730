"""The one thread that runs micro-batches: prepare, forward, pool, outputs, and nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from workers.engine.counters import Counters
from workers.engine.device_gates import DeviceGates
from workers.engine.scheduler import Scheduler
from workers.engine.sequence import Sequence, Work, is_out_of_memory

logger = logging.getLogger(__name__)


class RunnerThread:
    """Takes micro-batches until the scheduler closes. ``on_done`` and ``on_failed`` answer works and must not raise."""

    def __init__(
        self,
        scheduler: Scheduler,
        gates: DeviceGates,
        counters: Counters,
        on_done: Callable[[Work], object],
        on_failed: Callable[[Work, Exception], object],
    ) -> None:
        self.running_sequences = 0
        self._scheduler = scheduler
        self._gates = gates
        self._counters = counters
        self._on_done = on_done
        self._on_failed = on_failed
        self._thread = threading.Thread(target=self._run, name="model-runner", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """One micro-batch; False once closed. Its own frame: an idle thread keeps no unloaded model alive."""
        batch = self._scheduler.next_batch()
        if not batch:
            return False
        works = {sequence.work for sequence in batch}
        now = time.monotonic()
        for work in works:
            work.started = work.started or now
        self.running_sequences = len(batch)
        failure = self._run_batch(batch)
        self.running_sequences = 0
        tokens = sum(len(sequence.token_ids) for sequence in batch)
        if failure is None:
            self._scheduler.note_pace(batch[0].work.task, tokens, time.monotonic() - now)
        self._counters.add(micro_batches=1, sequences=len(batch), tokens=tokens, progress=1)
        if failure is not None:
            self._scheduler.withdraw(works.__contains__)
        for work in works:
            if failure is not None:
                self._on_failed(work, failure)
            elif not work.pending:
                self._on_done(work)
        return True

    def _run_batch(self, batch: list[Sequence]) -> Exception | None:
        """Whatever goes wrong concerns the requests of this micro-batch; the thread lives on."""
        try:
            with self._gates.of(batch[0].work.task.info.device):
                self._run_or_halve(batch)
        except Exception as error:
            logger.exception("A micro-batch of %s sequences failed", len(batch))
            return error
        return None

    def _run_or_halve(self, batch: list[Sequence]) -> None:
        run = batch[0].work.task.run
        try:
            run(batch)
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._counters.add(out_of_memory=1)
            if len(batch) == 1:
                raise
        # Once, and in order, so that queries still come before their documents.
        middle = len(batch) // 2
        run(batch[:middle])
        run(batch[middle:])
