"""From a registration to a model that was proved fit; what fails leaves nothing behind, neither weights nor entries."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import replace

from workers.engine.caches.building import Caches
from workers.engine.candidate import Candidate, Proof
from workers.engine.config import EngineConfig
from workers.engine.counters import Counters
from workers.engine.device_gates import DeviceGates
from workers.engine.forward.kept_prefix import PrefixCache
from workers.engine.kinds import build_runner, describe
from workers.engine.loading.checkpoint import device_for, load_checkpoint
from workers.engine.memory import MemoryMeter, forget_frames, give_memory_back
from workers.engine.model_types import ModelSpec
from workers.engine.task_runner import TaskRunner

_TRIES = 5
_PAUSE_SECONDS = 0.02


class Loader:
    """``introduce`` makes a new model known to the engine, which answers with the candidate that it is until proved."""

    def __init__(
        self,
        config: EngineConfig,
        caches: Caches,
        prefix_cache: PrefixCache,
        gates: DeviceGates,
        counters: Counters,
        introduce: Callable[[ModelSpec, TaskRunner], Candidate],
    ) -> None:
        self._config = config
        self._caches = caches
        self._prefix_cache = prefix_cache
        self._gates = gates
        self._counters = counters
        self._introduce = introduce

    def load(self, spec: ModelSpec, generation: int, prove: Proof | None) -> TaskRunner:
        """Raises what the checkpoint or ``prove`` raises, with the memory of everything given back."""
        made: list[weakref.ref[TaskRunner]] = []
        try:
            return self._load(spec, generation, prove, made)
        except BaseException as error:
            forget_frames(error)
            give_memory_back()
            for _ in range(_TRIES):  # the thread that answered the proof's last request may still be about to let go
                if all(task() is None for task in made):
                    break
                time.sleep(_PAUSE_SECONDS)
                give_memory_back()
            raise

    def _load(
        self, spec: ModelSpec, generation: int, prove: Proof | None, made: list[weakref.ref[TaskRunner]]
    ) -> TaskRunner:
        started = time.monotonic()
        meter = MemoryMeter(device_for(spec, self._config))
        checkpoint = load_checkpoint(spec, self._config, self._gates)
        info = describe(spec, checkpoint, generation, time.monotonic() - started)
        task = build_runner(spec, checkpoint, info, self._caches, self._counters)
        made.append(weakref.ref(task))
        task.prefix_cache = self._prefix_cache
        meter.note()
        candidate = self._introduce(spec, task)
        try:
            if prove is not None:
                prove(candidate)
        except BaseException:
            task.retired = True
            raise
        finally:
            candidate.dismiss()
        # A process that had memory free elsewhere grows by less than it holds now.
        task.info = replace(task.info, measured_bytes=max(meter.note(), info.weight_bytes))
        return task
