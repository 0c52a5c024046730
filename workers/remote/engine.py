"""The engine of a worker: what it computes itself, and beside that the models that servers elsewhere compute.

Whoever asks sees no difference: the same names, requests, futures and outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from workers.engine import Engine
from workers.engine.candidate import Candidate, Proof
from workers.engine.config import EngineConfig
from workers.engine.device_gates import DeviceGates
from workers.engine.errors import EngineError
from workers.engine.model_types import CanaryReport, MemoryEstimate, ModelInfo, ModelSpec
from workers.engine.token_reader import TokenReader
from workers.engine.types import PoolingRequest, ScoringRequest
from workers.remote.model import RemoteModel
from workers.remote.spec import RemoteSpec

REQUESTS_AT_ONCE: Final = 16
CALLS_AT_ONCE: Final = 16  # of all requests; not in the same pool, where requests could wait for their own calls


class EngineWithRemotes(Engine):
    def __init__(self, config: EngineConfig, gates: DeviceGates | None = None) -> None:
        super().__init__(config, gates)
        self._remotes: dict[str, RemoteModel] = {}
        self._remotes_lock = threading.Lock()
        self._requests = ThreadPoolExecutor(REQUESTS_AT_ONCE, "remote-request")
        self._calls = ThreadPoolExecutor(CALLS_AT_ONCE, "remote-call")
        self._tries = 0
        self._open_requests = 0

    def load(self, spec: ModelSpec, *, prove: Proof | None = None) -> ModelInfo:
        """Of a remote model nothing is loaded; ``prove`` asks its endpoint."""
        if not isinstance(spec, RemoteSpec):
            info = super().load(spec, prove=prove)
            self._forget(spec.name)
            return info
        remote = RemoteModel(spec, calls=self._calls, progressed=self._tried)
        if prove is not None:
            candidate = Candidate(spec, remote, lambda request: self._run(remote, request), lambda: self)
            try:
                prove(candidate)
            finally:
                candidate.dismiss()
        with self._remotes_lock:
            self._remotes[spec.name] = remote
        if spec.name in super().models():
            super().unload(spec.name)
        return remote.info

    def reader(self, name: str) -> TokenReader:
        if self._remote(name):
            raise EngineError(
                "unsupported_task",
                f"The model '{name}' is computed elsewhere, where its tokens are not told. Ask that server for them.",
            )
        return super().reader(name)

    def unload(self, name: str) -> None:
        if not self._forget(name):
            super().unload(name)

    def configure(self, spec: ModelSpec) -> ModelInfo:
        remote = self._remote(spec.name)
        return remote.info if remote else super().configure(spec)

    def models(self) -> dict[str, ModelInfo]:
        with self._remotes_lock:
            remotes = {name: remote.info for name, remote in self._remotes.items()}
        return super().models() | remotes

    def canary(self, name: str, golden: tuple[float, ...] = ()) -> CanaryReport:
        remote = self._remote(name)
        if remote is None:
            return super().canary(name, golden)
        candidate = Candidate(remote.spec, remote, lambda request: self._run(remote, request), lambda: self)
        return candidate.canary(golden)

    def estimate(self, spec: ModelSpec) -> MemoryEstimate:
        """A remote model takes no memory here."""
        if isinstance(spec, RemoteSpec):
            return MemoryEstimate("remote", "remote", ())
        return super().estimate(spec)

    def trouble(self, name: str) -> str:
        """Why a remote model's last calls failed; empty when the last one did not, and for models of ours."""
        remote = self._remote(name)
        return remote.breaker.cause if remote else ""

    def shut(self, name: str) -> str:
        """The same, but only while nothing is sent at all."""
        remote = self._remote(name)
        return remote.breaker.cause if remote and remote.breaker.is_open else ""

    def remote_statistics(self) -> dict[str, dict[str, float]]:
        """Of every remote model its calls by outcome, the seconds they took, and whether nothing is sent for now."""
        with self._remotes_lock:
            remotes = dict(self._remotes)
        return {
            name: {**remote.connection.counts.snapshot(), "shut": float(remote.breaker.is_open)}
            for name, remote in remotes.items()
        }

    @property
    def progress(self) -> int:
        return super().progress + self._tries

    @property
    def busy(self) -> bool:
        return super().busy or self._open_requests > 0

    def close(self) -> None:
        super().close()
        self._requests.shutdown(cancel_futures=True)
        self._calls.shutdown(cancel_futures=True)

    def _submit(self, request: Any, task: Any = None, *, afresh: bool = False) -> Future[Any]:
        remote = None if task is not None else self._remote(request.model)
        return self._run(remote, request) if remote else super()._submit(request, task, afresh=afresh)

    def _run(self, remote: RemoteModel, request: Any) -> Future[Any]:
        work: Callable[[], object]
        if isinstance(request, ScoringRequest):
            work = partial(remote.score, request)
        elif isinstance(request, PoolingRequest):
            work = partial(remote.pool, request)
        else:
            return _failed(
                EngineError(
                    "unsupported_task",
                    f"The model '{remote.spec.name}' is computed elsewhere, so nothing can be encoded ahead. Ask for "
                    "scores or vectors when they are needed.",
                )
            )
        with self._remotes_lock:
            self._open_requests += 1
        try:
            answer: Future[Any] = self._requests.submit(work)
        except RuntimeError:  # shut down
            self._done()
            return _failed(EngineError("closed", "The engine is closed."))
        answer.add_done_callback(lambda _: self._done())
        return answer

    def _done(self) -> None:
        with self._remotes_lock:
            self._open_requests -= 1

    def _tried(self) -> None:
        with self._remotes_lock:
            self._tries += 1

    def _remote(self, name: str) -> RemoteModel | None:
        with self._remotes_lock:
            return self._remotes.get(name)

    def _forget(self, name: str) -> bool:
        with self._remotes_lock:
            return self._remotes.pop(name, None) is not None


def _failed(error: EngineError) -> Future[Any]:
    failed: Future[Any] = Future()
    failed.set_exception(error)
    return failed
