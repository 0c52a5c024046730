"""One worker process: what it is made of, and the order in which it starts and ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import uuid
from dataclasses import asdict
from typing import Any, Final

from django.conf import settings

from scoring.payloads import PAYLOAD_VERSION
from scoring.services.chunks import chunks_reclaim_own
from scoring.services.registry import self_test_release, self_tests_interrupted
from scoring.services.workers import WorkerNews, worker_move, worker_register, worker_started
from scoring.states import HELD_STATES, WorkerState
from workers import tasks
from workers.batch import Batch
from workers.bm25_indexes import Bm25Indexes
from workers.consumer import Consumer
from workers.encodings import Encodings
from workers.engine.config import EngineConfig
from workers.errands import Errands
from workers.heartbeat import Heartbeat, Pulse
from workers.host import Host
from workers.retrieval import Retriever
from workers.set_ranking import SetRanker
from workers.sync import SyncDesk
from workers.watchdog import Watchdog

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 10.0
LOAD_SECONDS: Final = 600.0  # a load is one long step: it may take this long before it counts as stalled
CONNECT_SECONDS: Final = 5.0  # without Redis there is work enough in the database
EXIT_REPLACED: Final = 3


def device_problem(device: str) -> str:
    """Why no model with the device ``auto`` can be loaded on ``device`` in this process; empty where nothing is wrong.

    The worker runs all the same: it reports, serves models registered for the CPU, and refuses the others in words.
    """
    if not device.startswith("cuda"):
        return ""
    import torch

    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(device.partition(":")[2] or 0) < seen:
        return ""
    devices = {0: "no CUDA device", 1: "one CUDA device, cuda:0"}.get(seen, f"CUDA devices up to cuda:{seen - 1}")
    return (
        f"DEVICE is '{device}', but this process sees {devices}. Models whose own device is auto cannot be loaded "
        "here. Start the worker with DEVICE=auto or cpu, or give it the GPU."
    )


class WorkerProcess:
    """Everything this process runs."""

    def __init__(self, *, worker_id: uuid.UUID, name: str, device: str) -> None:
        """Write the row, take back what the process before us held, then bring the engine in, which takes its time."""
        self.exit_code = 0
        self._started = False
        self._replaced_by_another = False
        self.worker = worker_register(
            worker_id=worker_id,
            boot_id=uuid.uuid4(),
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=device,
        )
        chunks_reclaim_own(worker=self.worker)
        self_tests_interrupted(worker=self.worker)
        self.heartbeat = Heartbeat(worker=self.worker, pulse=self._pulse, changed=self._news, replaced=self._replaced)
        self.heartbeat.start()
        from workers.remote.engine import EngineWithRemotes

        self.problem = device_problem(device)
        if self.problem:
            logger.error("worker %s: %s", name, self.problem)
        self.engine = EngineWithRemotes(
            EngineConfig(
                device=device,
                threads=settings.ENGINE_THREADS,
                document_cache_bytes=settings.DOCUMENT_CACHE_BYTES,
                packed_cache_bytes=settings.PACKED_SET_BYTES,
                cache_folder=settings.DATA_DIR / "cache",
                disk_cache_bytes=settings.DISK_CACHE_BYTES,
                cache_dtype=settings.CACHE_DTYPE,
                conversion_folder=settings.DATA_DIR / "converted",
            )
        )
        self.host = Host(engine=self.engine, worker=self.worker, changed=self._host_changed)
        indexes = Bm25Indexes(settings.DATA_DIR / "bm25", limit=settings.BM25_INDEX_BYTES)
        self.sync = SyncDesk(host=self.host, ranker=SetRanker(host=self.host, indexes=indexes), worker_name=name)
        self.batch = Batch(host=self.host, engine=self.engine, retriever=Retriever(indexes), worker=self.worker)
        self.errands = Errands(engine=self.engine, host=self.host, worker=self.worker)
        self.encodings = Encodings(engine=self.engine, host=self.host, worker=self.worker)
        self.consumer = Consumer(name=name, worker_id=worker_id, models=self.host.serving)
        self.watchdog = Watchdog(progress=lambda: self.engine.progress, limit=self._patience, last_words=self._stalled)
        # A chunk may hang while the engine gets on with the work of others.
        self.chunk_watchdog = Watchdog(progress=self.batch.slowest, limit=self._patience, last_words=self._stalled)

    def start(self) -> None:
        tasks.serve(self)
        self._started = True
        self.sync.start()
        self.consumer.start(patience=CONNECT_SECONDS)  # who is called ready gets messages
        worker_started(worker=self.worker)
        for part in (self.watchdog, self.chunk_watchdog, self.host, self.batch, self.errands, self.encodings):
            part.start()
        logger.info("worker %s is %s", self.worker.name, self.worker.state)

    def wake(self) -> None:
        self.host.wake()
        self.batch.check()
        self.batch.wake()
        self.errands.wake()
        self.encodings.wake()

    def drain(self) -> None:
        """Take nothing new, stop after the micro-batch, give the chunks back, answer who waits, and be gone."""
        # Whatever hangs below, the process ends in time: a supervisor's SIGKILL would count the chunks as crashed.
        emergency = threading.Timer(DRAIN_SECONDS, os._exit, (self.exit_code,))
        emergency.daemon = True
        emergency.start()
        self._move(WorkerState.DRAINING, reason="stopping")
        self.consumer.stop(2.0)
        self.batch.drain(4.0)
        self.sync.drain(2.0)
        self.errands.stop()
        self.encodings.stop()
        self.host.stop()
        self.heartbeat.stop(1.0)
        self.watchdog.stop()
        self.chunk_watchdog.stop()
        if not self._replaced_by_another:
            self_test_release(worker=self.worker)  # before the engine ends: its refusal is no finding about the model
        self._move(WorkerState.GONE, reason="stopped")
        self.engine.close()
        emergency.cancel()

    def _move(self, to: WorkerState, *, reason: str) -> None:
        """Write our state, unless the row tells of another process by now."""
        if not self._replaced_by_another:
            worker_move(worker=self.worker, to=to, reason=reason)

    def _host_changed(self) -> None:
        self.batch.wake()
        self.consumer.wake()

    def _news(self, news: WorkerNews, before: WorkerNews | None) -> None:
        """What the heartbeat brought back. Whoever is kept from work begins nothing, and says when all is done."""
        if not self._started:
            return
        if before is None or news.placements != before.placements or news.state != before.state:
            self.host.wake()
        if news.jobs and (before is None or news.jobs != before.jobs):
            self.batch.wake()
        self.batch.hold(news.state in HELD_STATES)

    def _pulse(self) -> Pulse:
        if not self._started:
            return Pulse(0, [], {})
        if self.worker.state == WorkerState.DRAINING and self.worker.hold and self._is_empty():
            self._move(WorkerState.DRAINED, reason="everything in hand was answered")
        free = self.host.memory.free_bytes()
        return Pulse(self.engine.progress, self.batch.in_hand(), self._statistics(), free)

    def _is_empty(self) -> bool:
        return not (self.batch.in_hand() or self.engine.busy or self.host.names())

    def _statistics(self) -> dict[str, Any]:
        return {
            "engine": asdict(self.engine.statistics()),
            "models": self.host.names(),
            "sync": self.sync.outcomes.snapshot(),
            "chunks": self.batch.outcomes.snapshot(),
            "chunk_work": self.batch.work.snapshot(),
            "remote": self.engine.remote_statistics(),
            "documents_kept": {name: asdict(share) for name, share in self.engine.document_shares().items()},
            "payload_version": PAYLOAD_VERSION,
            **({"problem": self.problem} if self.problem else {}),
        }

    def _patience(self) -> float | None:
        if self.host.loading:
            return LOAD_SECONDS
        return float(settings.STALL_SECONDS) if self.engine.busy else None

    def _stalled(self) -> None:
        self._move(WorkerState.STALLED, reason="no progress")

    def _replaced(self) -> None:
        self._replaced_by_another = True
        self.exit_code = EXIT_REPLACED
        os.kill(os.getpid(), signal.SIGTERM)  # the main thread looks out for it
