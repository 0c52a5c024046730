"""Chunks of jobs: lease, score, store. Two loops, so that one is tokenised or stored while another is computed."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import close_old_connections
from django.db.models import Exists, OuterRef
from structlog.contextvars import bound_contextvars

from scoring.models import Chunk, Placement, ScoringModel, Worker
from scoring.ranking import ScoreBlock
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
from scoring.services.stages import changed_settings, model_snapshot
from scoring.states import SERVING, ChunkCause, ChunkState, ModelState, PlacementDemand
from workers.chunk_scoring import ChunkFault, chunk_task, score_block, score_report
from workers.counters import Counters
from workers.engine.errors import EngineError, RequestCancelled
from workers.faults import ModelUnavailable
from workers.host import Host
from workers.loop import Loop
from workers.remote.connection import RemoteUnavailable
from workers.retrieval import Retriever, retrieval_report

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine

logger = logging.getLogger(__name__)

LOOPS: Final = 2
POLL_SECONDS: Final = 10.0  # the heartbeat tells of new jobs, the host of loaded models
RELIEF_SECONDS: Final = 60.0
KEEPER_SECONDS: Final = 1.0
LOADS_BEFORE_CHUNKS_FAIL: Final = 3
HOPELESS_AT_ONCE: Final = 50
NOT_ITS_FAULT: Final = frozenset({"closed", "model_not_loaded", "model_unloaded", "overloaded"})  # but the moment's


@dataclass(eq=False, slots=True)
class ChunkInHand:
    chunk: Chunk
    token: uuid.UUID
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: int = 0  # micro-batches that had a part of it
    progress_at: float = field(default_factory=time.monotonic)
    extended_progress: int = 0
    extended_at: float = field(default_factory=time.monotonic)

    def progressed(self) -> None:
        self.progress += 1
        self.progress_at = time.monotonic()

    def may_extend(self, now: float, *, loading: bool) -> bool:
        """Only its own progress counts: others may get on while this one hangs. A load has the device or the cores to
        itself for a while; whoever waits behind it does not hang, and the watchdog ends a load that does."""
        due = now - self.extended_at >= settings.LEASE_SECONDS / 3
        return due and (loading or self.progress > self.extended_progress)

    def extended(self, now: float) -> None:
        self.extended_progress, self.extended_at = self.progress, now


class Batch:
    def __init__(self, *, host: Host, engine: Engine, retriever: Retriever, worker: Worker) -> None:
        self.outcomes = Counters()
        self.work = Counters()  # of chunks done: seconds, documents, pairs
        self._retriever = retriever
        self._host = host
        self._engine = engine
        self._worker = worker
        self._in_hand: set[ChunkInHand] = set()
        self._lock = threading.Lock()  # over _in_hand, _emptying and the decision to lease
        self._emptying = False
        self._held = False
        self._closed = False
        # One looks for work; it wakes the others when there is some.
        self._loops = [
            Loop(f"batch-{n + 1}", self._turn, seconds=RELIEF_SECONDS if n else POLL_SECONDS) for n in range(LOOPS)
        ]
        self._keeper = Loop("lease-keeper", self._keep, seconds=KEEPER_SECONDS)

    def start(self) -> None:
        for loop in (*self._loops, self._keeper):
            loop.start()

    def wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def check(self) -> None:
        """Look at once whether what is in hand is still wanted."""
        self._keeper.wake()

    def in_hand(self) -> list[str]:
        return [str(hand.chunk) for hand in list(self._in_hand)]

    def slowest(self) -> tuple[uuid.UUID, int] | None:
        """The chunk in hand that has made no progress for the longest time, and how far it is."""
        hand = min(list(self._in_hand), key=lambda hand: hand.progress_at, default=None)
        return (hand.token, hand.progress) if hand else None

    def hold(self, held: bool) -> None:
        """While it is held, lease nothing more; what is in hand stops after its micro-batch and is given back."""
        with self._lock:
            changed, self._held = self._held != held, held
        for hand in list(self._in_hand) if held else ():
            hand.cancelled.set()
        if changed and not held:
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
        """One chunk from lease to end. Returns whether to look for another one at once."""
        if self._held:
            return False
        ready, hopeless = self._models()
        if hopeless:
            self._fail(hopeless)
        hand = self._lease(ready)
        if hand is None:
            return False
        try:
            with about(hand.chunk):
                return self._run(hand)
        finally:
            with self._lock:
                self._in_hand.remove(hand)

    def _models(self) -> tuple[list[uuid.UUID], dict[uuid.UUID, str]]:
        """Models with pending chunks: those loaded here, and those whose chunks can only fail, with the reason.

        Asking ``ensure`` is what gets a model loaded; the host wakes these loops when it is. Chunks of a model that is
        not served wait: it may be served again.
        """
        pending = Chunk.objects.filter(stage__model=OuterRef("pk"), state=ChunkState.PENDING, job__state__in=RUNNABLE)
        ready, hopeless = [], {}
        for model in ScoringModel.objects.filter(Exists(pending), state=ModelState.AVAILABLE):
            if (loaded := self._ensure(model)).done():
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
        elsewhere = Placement.objects.filter(model=model, state__in=SERVING, worker__in=workers_alive())
        return not elsewhere.exclude(worker=self._worker).exists()

    def _fail(self, hopeless: Mapping[uuid.UUID, str]) -> None:
        for _ in range(HOPELESS_AT_ONCE):
            if self._closed:
                return
            chunk = chunk_lease(worker=self._worker, models=list(hopeless), retrieval=False)
            if chunk is None:
                return
            self._give_back(chunk, ChunkCause.ITEM_ERROR, hopeless[chunk.stage.scorer.pk], final=True)

    def _lease(self, ready: list[uuid.UUID]) -> ChunkInHand | None:
        """Take the next chunk. One that failed before runs alone, so that a crash is put down to it and to no other."""
        with self._lock:
            suspect = any(hand.chunk.attempts for hand in self._in_hand)
            if self._closed or self._held or (self._in_hand and (suspect or self._emptying)):
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
        self.wake()
        return hand

    def _run(self, hand: ChunkInHand) -> bool:
        """False: the engine takes nothing at this moment, so that leasing again had better wait for a wake-up."""
        chunk = hand.chunk
        try:
            block, report = self._retrieved(hand) if chunk.stage.model is None else self._scored(hand)
        except (RequestCancelled, ModelUnavailable):
            self._give_back(chunk, ChunkCause.RELEASED)
        except ChunkFault as error:
            self._give_back(chunk, ChunkCause.ITEM_ERROR, str(error), final=True)
        except EngineError as error:
            if error.code in NOT_ITS_FAULT:
                self._give_back(chunk, ChunkCause.RELEASED, str(error))
                return False
            self._give_back(chunk, ChunkCause.ITEM_ERROR, str(error))
        except AnyDatabaseError:
            raise  # the lease ends by itself
        except Exception as error:  # a fault of ours: counted against the chunk, so that it cannot come back for ever
            logger.exception("chunk %s failed", chunk)
            self._give_back(chunk, ChunkCause.ITEM_ERROR, f"{type(error).__name__}: {error}")
        else:
            stored = self._stored(lambda: chunk_complete(chunk=chunk, worker=self._worker, block=block, report=report))
            outcome = "done" if stored else "lease_lost"
            self.outcomes.add(outcome)
            if stored:
                self.work.add("seconds", report["seconds"])
                self.work.add("documents", chunk.document_count)
                self.work.add("pairs", block.pair_count)
            logger.info("chunk: %s, %.2f s", outcome, report["seconds"])
        return True

    def _scored(self, hand: ChunkInHand) -> tuple[ScoreBlock, dict[str, Any]]:
        started = time.monotonic()
        task = chunk_task(hand.chunk, model_name=self._model_name(hand.chunk), cancelled=hand.cancelled)
        request = replace(task.request, progressed=hand.progressed)
        try:
            output = self._host.submit(hand.chunk.stage.scorer.pk, request, interactive=False).result()
        except RemoteUnavailable as error:
            raise ModelUnavailable(str(error)) from error
        seconds = time.monotonic() - started
        return score_block(task, output), score_report(task, output, worker=self._worker.name, seconds=seconds)

    def _retrieved(self, hand: ChunkInHand) -> tuple[ScoreBlock, dict[str, Any]]:
        started = time.monotonic()
        block = self._retriever.retrieve(hand.chunk, progressed=hand.progressed, cancelled=hand.cancelled)
        seconds = time.monotonic() - started
        return block, retrieval_report(hand.chunk, worker=self._worker.name, seconds=seconds)

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

    def _give_back(self, chunk: Chunk, cause: ChunkCause, error: str = "", *, final: bool = False) -> None:
        chunk_give_back(chunk=chunk, actor=worker_label(self._worker), cause=cause, error=error, final=final)
        self.outcomes.add(cause)
        with about(chunk):
            logger.info("chunk given back: %s %s", cause, error)

    def _keep(self) -> None:
        """Stop what is not wanted any more; extend the leases of the chunks that got on since the last time."""
        hands = {hand.token: hand for hand in list(self._in_hand)}
        if not hands:
            return
        for token in chunks_to_stop(list(hands)):
            hands[token].cancelled.set()
        now, loading = time.monotonic(), self._host.loading
        if due := [hand for hand in hands.values() if hand.may_extend(now, loading=loading)]:
            chunks_extend([hand.token for hand in due])
            for hand in due:
                hand.extended(now)


def about(chunk: Chunk) -> AbstractContextManager[None]:
    """Log lines inside name the job and the chunk."""
    return bound_contextvars(job=str(chunk.job_id), chunk=chunk.index)
