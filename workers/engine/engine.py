"""The engine's front: models by name, requests in, futures out, and the one thread that runs micro-batches."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from workers.engine.caches.building import build_caches, cache_statistics
from workers.engine.caches.embedding_cache import EmbeddingCache
from workers.engine.candidate import Candidate, LoadedModel, Proof
from workers.engine.config import EngineConfig
from workers.engine.counters import Counters
from workers.engine.device_gates import DeviceGates
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.forward.kept_prefix import PrefixCache
from workers.engine.loaded_models import LoadedModels
from workers.engine.loader import Loader
from workers.engine.loading.memory_estimate import estimate_memory
from workers.engine.long_documents import split_documents
from workers.engine.memory import give_memory_back, keep_freed_memory
from workers.engine.model_types import CanaryReport, MemoryEstimate, ModelInfo, ModelSpec, SelfTestReport
from workers.engine.role import Role
from workers.engine.runner_thread import RunnerThread
from workers.engine.scheduler import Scheduler
from workers.engine.sequence import Work, fail
from workers.engine.statistics import COUNTED, DocumentShare, EngineStatistics
from workers.engine.task_runner import TaskRunner
from workers.engine.token_reader import TokenReader
from workers.engine.types import (
    EncodingOutput,
    EncodingRequest,
    PoolingOutput,
    PoolingRequest,
    Priority,
    ScoringOutput,
    ScoringRequest,
)


class Engine:
    """Thread-safe. A request runs to its end on the weights it was submitted to, whatever is loaded meanwhile."""

    def __init__(self, config: EngineConfig, gates: DeviceGates | None = None) -> None:
        """``gates``: of the engine that this one stands beside for a while, on the same devices."""
        keep_freed_memory()
        self._gates = gates or DeviceGates()
        if config.threads:
            torch.set_num_threads(config.threads)
        self._config = config
        self._load_lock = threading.Lock()  # one load at a time: two would double the memory at its peak
        self._generations: dict[str, int] = {}
        self._counters = Counters()
        self._caches = build_caches(config)
        self._models = LoadedModels(self._caches[Role.DOCUMENT])
        self._prefix_cache = PrefixCache(config.prefix_cache_bytes)
        self._loader = Loader(config, self._caches, self._prefix_cache, self._gates, self._counters, self._introduce)
        self._scheduler = Scheduler(config, self._abandon_later)
        self._preprocess = {
            priority: ThreadPoolExecutor(config.preprocess_threads, f"preprocess-{priority.name.lower()}")
            for priority in Priority
        }
        self._postprocess = ThreadPoolExecutor(1, "postprocess")
        finish, abandon = self._finish_later, self._abandon_later
        self._runner = RunnerThread(self._scheduler, self._gates, self._counters, finish, abandon)

    def load(self, spec: ModelSpec, *, prove: Proof | None = None) -> ModelInfo:
        """Load or reload; blocks. While a reload runs, the old weights go on serving; so they do when ``prove``, asked
        once the new ones are in memory, raises. ``must_pass_self_test`` is such a proof."""
        with self._load_lock:
            generation = self._generations.get(spec.name, 0) + 1
            task = self._loader.load(spec, generation, prove)
            self._generations[spec.name] = generation
            replaced = self._models.put(spec, task)
            if replaced is not None:
                replaced.task.retired = True
                self._clear_caches(replaced)  # shared or not: they may be reloaded for a drift
            if replaced is not None or spec.gguf_file:  # the old weights, or what a conversion left
                del replaced
                give_memory_back()
            self._counters.add(progress=1)
            return task.info

    def unload(self, name: str) -> None:
        """Give the model's memory back; requests of it that still wait are answered with ``model_unloaded``."""
        model = self._models.remove(name)
        if model is None:
            raise self._not_loaded(name)
        model.task.retired = True
        self._drop_unloaded()
        model.task.clear()
        self._clear_caches(model, keep_shared=True)
        del model
        give_memory_back()

    def configure(self, spec: ModelSpec) -> ModelInfo:
        """Change the model of that name in what needs no reload; in force from the next micro-batch on. Of documents it
        keeps no more than it may when this returns."""
        task = self._model(spec.name).task
        task.set_gpu_maxsim(spec.gpu_maxsim)
        self._models.settle(spec)
        return task.info

    def models(self) -> dict[str, ModelInfo]:
        return self._models.infos()

    def submit(self, request: ScoringRequest) -> Future[ScoringOutput]:
        """Never blocks and never raises: what is wrong is set on the future as ``EngineError``."""
        return self._submit(request)

    def submit_pooling(self, request: PoolingRequest) -> Future[PoolingOutput]:
        """The same for single texts."""
        return self._submit(request)

    def pre_encode(self, request: EncodingRequest) -> Future[EncodingOutput]:
        """Encode documents before their queries come: a request that scores them then encodes its queries only."""
        return self._submit(request)

    def _submit(
        self,
        request: ScoringRequest | PoolingRequest | EncodingRequest,
        task: TaskRunner | None = None,
        *,
        afresh: bool = False,
    ) -> Future[Any]:
        """To the model of that name that serves, unless to a ``task`` of whoever asks."""
        try:
            task = task or self._model(request.model).task
            work = Work(request, task, task.admit(request), afresh)
            self._scheduler.admit(work)
        except EngineError as error:
            self._counters.add(overloaded=error.code == "overloaded")
            refused: Future[Any] = Future()
            refused.set_exception(error)
            return refused
        work.future.set_running_or_notify_cancel()  # cancelling goes through ``request.cancelled``
        try:
            self._preprocess[request.priority].submit(self._prepare, work)
        except RuntimeError:  # closed since it was admitted
            self._abandon(work, EngineError("closed", "The engine is closed."))
        return work.future

    @property
    def encodings(self) -> EmbeddingCache:
        return self._caches[Role.DOCUMENT]

    def document_shares(self) -> dict[str, DocumentShare]:
        """What each model that keeps encodings of documents keeps now."""
        return self._models.shares()

    def reader(self, name: str) -> TokenReader:
        return TokenReader(self._model(name).task)

    def self_test(self, name: str) -> SelfTestReport:
        """Score known pairs and compare; blocks."""
        model = self._model(name)
        return self._candidate(model.spec, model.task).self_test()

    def canary(self, name: str, golden: tuple[float, ...] = ()) -> CanaryReport:
        """Score the self-test's pairs once more, past all caches and behind interactive work, and compare them with
        their ``golden`` scores, by default those of the model's registration; blocks."""
        model = self._model(name)
        return self._candidate(model.spec, model.task, Priority.BATCH).canary(golden or model.spec.golden_scores)

    def estimate(self, spec: ModelSpec) -> MemoryEstimate:
        """What the model would take on its device at its peak, from its configuration alone; no weights are read.

        Raises ``EngineError`` where the folder cannot be loaded for want of the files that say so."""
        return estimate_memory(spec, self._config, models=len(self.models().keys() | {spec.name}))

    def statistics(self) -> EngineStatistics:
        tasks = self._models.tasks()  # replaced ones that still run too: a leak must show
        waiting_requests, waiting_tokens = self._scheduler.waiting()
        return EngineStatistics(
            waiting_requests=waiting_requests,
            waiting_tokens=waiting_tokens,
            running_sequences=self._runner.running_sequences,
            requests_in_flight=self._scheduler.in_flight,
            reservations=sum(task.reservations for task in tasks),
            reserved_bytes=sum(task.reserved_bytes for task in tasks),
            **self._counters.snapshot(COUNTED),
            **cache_statistics(self._caches, self._prefix_cache),
        )

    @property
    def progress(self) -> int:
        """Grows by one after every finished micro-batch and load; a stalled device stops it, a full queue does not."""
        return self._counters["progress"]

    @property
    def busy(self) -> bool:
        return self._scheduler.in_flight > 0

    def close(self) -> None:
        """Finish the micro-batch that runs, answer everything else with ``closed``, end the threads."""
        closed = EngineError("closed", "The engine was closed before the work was finished.")
        waiting = self._scheduler.close()
        for pool in self._preprocess.values():
            pool.shutdown()
        self._runner.join()
        for work in (*waiting, *self._scheduler.close()):  # again: what was being tokenised has arrived since
            self._abandon(work, closed)
        self._postprocess.shutdown()
        for cache in self._caches.values():
            cache.close()

    def _introduce(self, spec: ModelSpec, task: TaskRunner) -> Candidate:
        self._models.introduce(task)
        return self._candidate(spec, task)

    def _candidate(self, spec: ModelSpec, task: TaskRunner, priority: Priority = Priority.INTERACTIVE) -> Candidate:
        def submit(request: Any) -> Future[Any]:
            return self._submit(replace(request, priority=priority), task, afresh=True)

        return Candidate(spec, task, submit, lambda: Engine(replace(self._config, cache_folder=None), self._gates))

    def _model(self, name: str) -> LoadedModel:
        try:
            return self._models[name]
        except KeyError:
            raise self._not_loaded(name) from None

    def _not_loaded(self, name: str) -> EngineError:
        known = ", ".join(sorted(self.models())) or "none"
        return EngineError("model_not_loaded", f"The model '{name}' is not loaded here. Loaded: {known}.")

    def _drop_unloaded(self) -> None:
        for work in self._scheduler.withdraw(lambda work: work.task.unloaded):
            unloaded = f"The model '{work.request.model}' was unloaded before the work was finished."
            self._abandon(work, EngineError("model_unloaded", unloaded))

    def _clear_caches(self, gone: LoadedModel, *, keep_shared: bool = False) -> None:
        owner = gone.task.encodings_owner
        shared = any(task.encodings_owner == owner and not task.retired for task in self._models.tasks())
        for cache in self._caches.values() if owner is not None and not (keep_shared and shared) else ():
            cache.clear(owner)
        self._prefix_cache.clear(gone.spec.name)

    def _prepare(self, work: Work) -> None:
        """In a preprocess thread: everything up to the token ids."""
        started = time.monotonic()
        work.task.give_up_unused(self._config.reservation_seconds)
        try:
            work.check_wanted()
            if isinstance(work.request, ScoringRequest):
                work.windows = split_documents(work.request, work.task, check_wanted=work.check_wanted)
                work.request = work.windows.request if work.windows else work.request
            work.task.prepare(work)
        except Exception as error:  # nobody waits any more, or whatever a text does to a tokenizer or template
            self._abandon(work, error)
            return
        work.prepared = time.monotonic()
        work.tokenise_seconds = work.prepared - started
        if not work.pending:  # nothing but empty texts
            self._finish(work)
            return
        self._scheduler.add(work)
        if work.task.unloaded:  # meanwhile: whoever of the two looks last sees the other
            self._drop_unloaded()

    def _finish_later(self, work: Work) -> None:
        self._postprocess.submit(self._finish, work)

    def _abandon_later(self, work: Work, error: Exception) -> None:
        """Not on the runner thread: answering wakes whoever waits, and may call back into code that is not ours."""
        self._postprocess.submit(self._abandon, work, error)

    def _finish(self, work: Work) -> None:
        """In a postprocess thread: from scores to the answer."""
        try:
            output = work.task.finish(work)
            if work.windows is not None:
                output = work.windows.fold(output)
        except Exception as error:  # concerns this request alone
            self._abandon(work, error)
            return
        work.task.release(work)
        if self._scheduler.leave(work):
            work.future.set_result(output)

    def _abandon(self, work: Work, error: Exception) -> None:
        """Answer with an error; whoever takes the work out of the waiting room first answers it, nobody twice."""
        work.task.release(work)
        if self._scheduler.leave(work):
            departed = isinstance(error, RequestCancelled)
            self._counters.add(dropped=departed, failed_requests=not departed)
            fail(work, error)
