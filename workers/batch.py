"""Chunks of jobs: lease, score, store. Two loops, so that one is tokenised or stored while another is computed."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import close_old_connections
from django.db.models import Exists, OuterRef
from structlog.contextvars import bound_contextvars

from scoring.models import Chunk, Placement, ScoringModel, Worker
from scoring.selectors.workers import workers_alive
from scoring.services.chunks import (
    RUNNABLE,
    chunk_complete,
    chunk_give_back,
    chunk_lease,
    chunks_extend,
    chunks_to_stop,
    worker_label,
)
from scoring.services.stages import model_snapshot
from scoring.states import ChunkCause, ChunkState, ModelState, PlacementDemand, PlacementState
from workers.chunk_scoring import ChunkFault, chunk_request, score_block, score_report
from workers.counters import Counters
from workers.engine.errors import EngineError, RequestCancelled
from workers.faults import ModelUnavailable
from workers.host import Host
from workers.loop import Loop

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine

logger = logging.getLogger(__name__)

LOOPS: Final = 2
POLL_SECONDS: Final = 10.0  # the heartbeat tells of new jobs, the host of loaded models
KEEPER_SECONDS: Final = 1.0
LOADS_BEFORE_CHUNKS_FAIL: Final = 3
HOPELESS_AT_ONCE: Final = 50
NOT_SERVED: Final = (ModelState.REJECTED, ModelState.DISABLED)


@dataclass(eq=False, slots=True)
class ChunkInHand:
    chunk: Chunk
    token: uuid.UUID
    cancelled: threading.Event = field(default_factory=threading.Event)


class Batch:
    def __init__(self, *, host: Host, engine: Engine, worker: Worker) -> None:
        self.outcomes = Counters()
        self._host = host
        self._engine = engine
        self._worker = worker
        self._in_hand: set[ChunkInHand] = set()
        self._lock = threading.Lock()  # over _in_hand, _emptying and the decision to lease
        self._emptying = False
        self._held = False
        self._closed = False
        self._extended_at = 0.0
        self._extended_progress = -1
        self._loops = [Loop(f"batch-{n + 1}", self._turn, seconds=POLL_SECONDS) for n in range(LOOPS)]
        self._keeper = Loop("lease-keeper", self._keep, seconds=KEEPER_SECONDS)

    def start(self) -> None:
        for loop in (*self._loops, self._keeper):
            loop.start()

    def wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def in_hand(self) -> list[str]:
        return [str(hand.chunk) for hand in list(self._in_hand)]

    def hold(self, held: bool) -> None:
        """While it is held, lease nothing more; what is in hand stops after its micro-batch and is given back."""
        self._held = held
        for hand in list(self._in_hand) if held else ():
            hand.cancelled.set()
        if not held:
            self.wake()

    def drain(self, seconds: float) -> None:
        """Lease nothing more, stop after the micro-batch, give the chunks back."""
        self._closed = True
        for hand in list(self._in_hand):
            hand.cancelled.set()
        end = time.monotonic() + seconds
        for loop in self._loops:
            loop.stop(max(end - time.monotonic(), 0.0))
        self._keeper.stop()

    def _turn(self) -> bool:
        """One chunk from lease to end. Returns whether there was one: then there may be more."""
        ready, hopeless = self._models() if not self._held else ([], {})
        if hopeless:
            self._fail(hopeless)
        hand = self._lease(ready)
        if hand is None:
            return False
        try:
            with about(hand.chunk):
                self._run(hand)
        finally:
            with self._lock:
                self._in_hand.remove(hand)
        return True

    def _models(self) -> tuple[list[uuid.UUID], dict[uuid.UUID, str]]:
        """Models with pending chunks: those loaded here, and those whose chunks can only fail, with the reason.

        Asking ``ensure`` is what gets a model loaded; the host wakes these loops when it is.
        """
        pending = Chunk.objects.filter(stage__model=OuterRef("pk"), state=ChunkState.PENDING, job__state__in=RUNNABLE)
        ready, hopeless = [], {}
        for model in ScoringModel.objects.filter(Exists(pending)):
            if model.state in NOT_SERVED:
                hopeless[model.pk] = f"Model '{model.name}' is not served ({model.get_state_display()})."
            elif model.state == ModelState.AVAILABLE and (loaded := self._ensure(model)).done():
                error = loaded.exception()
                if error is None:
                    ready.append(model.pk)
                elif isinstance(error, ModelUnavailable) and self._is_hopeless(model, error):
                    hopeless[model.pk] = str(error)
        return ready, hopeless

    def _ensure(self, model: ScoringModel) -> Future[str]:
        return self._host.ensure(model, demand=PlacementDemand.BATCH)

    def _is_hopeless(self, model: ScoringModel, error: ModelUnavailable) -> bool:
        """Nobody can load it: then a job must say so rather than wait for ever."""
        if error.failures < LOADS_BEFORE_CHUNKS_FAIL:
            return False
        elsewhere = Placement.objects.filter(model=model, state=PlacementState.READY, worker__in=workers_alive())
        return not elsewhere.exclude(worker=self._worker).exists()

    def _fail(self, hopeless: Mapping[uuid.UUID, str]) -> None:
        for _ in range(HOPELESS_AT_ONCE):
            if self._closed or (chunk := chunk_lease(worker=self._worker, models=list(hopeless))) is None:
                return
            self._give_back(chunk, ChunkCause.ITEM_ERROR, hopeless[chunk.stage.scorer.pk])

    def _lease(self, ready: list[uuid.UUID]) -> ChunkInHand | None:
        """Take the next chunk. One that failed before runs alone, so that a crash is put down to it and to no other."""
        with self._lock:
            suspect = any(hand.chunk.attempts for hand in self._in_hand)
            if self._closed or self._held or not ready or (self._in_hand and (suspect or self._emptying)):
                return None
            chunk = chunk_lease(worker=self._worker, models=ready)
            if chunk is not None and chunk.attempts and self._in_hand:
                self._emptying = True
                self._give_back(chunk, ChunkCause.RELEASED)
                return None
            self._emptying = False
            if chunk is None or chunk.lease_token is None:
                return None
            hand = ChunkInHand(chunk, chunk.lease_token)
            self._in_hand.add(hand)
            return hand

    def _run(self, hand: ChunkInHand) -> None:
        chunk = hand.chunk
        started = time.monotonic()
        try:
            model_name = self._model_name(chunk)
            request = chunk_request(chunk, model_name=model_name, cancelled=hand.cancelled)
            output = self._host.submit(chunk.stage.scorer.pk, request, interactive=False).result()
            block = score_block(chunk, output)
        except (RequestCancelled, ModelUnavailable):
            self._give_back(chunk, ChunkCause.RELEASED)
        except (EngineError, ChunkFault) as error:
            self._give_back(chunk, ChunkCause.ITEM_ERROR, str(error))
        except AnyDatabaseError:
            raise  # the lease ends by itself
        except Exception as error:  # a fault of ours: counted against the chunk, so that it cannot come back for ever
            logger.exception("chunk %s failed", chunk)
            self._give_back(chunk, ChunkCause.ITEM_ERROR, f"{type(error).__name__}: {error}")
        else:
            report = score_report(output, worker=self._worker.name, seconds=time.monotonic() - started)
            stored = self._stored(lambda: chunk_complete(chunk=chunk, worker=self._worker, block=block, report=report))
            outcome = "done" if stored else "lease_lost"
            self.outcomes.add(outcome)
            logger.info("chunk: %s, %.2f s", outcome, report["seconds"])

    def _model_name(self, chunk: Chunk) -> str:
        """The engine's name of the job's model, if that still is the model which the job was submitted for."""
        model = chunk.stage.scorer
        if different := changed_settings(chunk.stage.settings, model_snapshot(model)):
            raise ChunkFault(
                f"Model '{model.name}' changed after the job was submitted ({', '.join(different)}); "
                "submit the job again."
            )
        loaded = self._ensure(model)
        if not loaded.done():
            raise ModelUnavailable("It is being loaded.")
        return loaded.result()

    def _stored(self, store: Any) -> bool:
        """Computed scores are worth some patience with the database: as long as the lease may last."""
        give_up = time.monotonic() + settings.LEASE_SECONDS
        while True:
            try:
                return bool(store())
            except AnyDatabaseError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(1.0)
                close_old_connections()

    def _give_back(self, chunk: Chunk, cause: ChunkCause, error: str = "") -> None:
        chunk_give_back(chunk=chunk, actor=worker_label(self._worker), cause=cause, error=error)
        self.outcomes.add(cause)
        with about(chunk):
            logger.info("chunk given back: %s %s", cause, error)

    def _keep(self) -> None:
        """Stop what is not wanted any more; extend the leases, but only if the engine got on since the last time."""
        hands = {hand.token: hand for hand in list(self._in_hand)}
        if not hands:
            return
        for token in chunks_to_stop(list(hands)):
            hands[token].cancelled.set()
        progress, now = self._engine.progress, time.monotonic()
        if progress > self._extended_progress and now - self._extended_at >= settings.LEASE_SECONDS / 3:
            chunks_extend(list(hands))
            self._extended_at, self._extended_progress = now, progress


def about(chunk: Chunk) -> AbstractContextManager[None]:
    """Log lines inside name the job and the chunk."""
    return bound_contextvars(job=str(chunk.job_id), chunk=chunk.index)


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which of the settings that decide a score are not what they were. Where MaxSim runs is not one of them."""
    return sorted(name for name in then if name not in ("model", "gpu_maxsim") and then[name] != now.get(name))
