"""This process's row: that it lives, how far it is, what it has in hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
from django.conf import settings

from assay.pulse import pulse_beat
from scoring.models import Worker
from scoring.services.workers import WorkerNews, worker_heartbeat
from workers.loop import Loop

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pulse:
    """What one heartbeat reports."""

    progress: int
    in_hand: list[str]
    statistics: dict[str, Any]
    memory_free_bytes: int = 0


class Heartbeat:
    """Writes ``pulse()`` every HEARTBEAT_SECONDS, and brings back what others changed: ``changed`` is called with the
    news and those before, ``replaced`` when another process has taken the slot."""

    def __init__(
        self,
        *,
        worker: Worker,
        pulse: Callable[[], Pulse],
        changed: Callable[[WorkerNews, WorkerNews | None], None],
        replaced: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._pulse = pulse
        self._changed = changed
        self._replaced = replaced
        self._last: WorkerNews | None = None
        self._process = psutil.Process()
        self._loop = Loop("heartbeat", self.beat, seconds=settings.HEARTBEAT_SECONDS)
        self.start, self.stop = self._loop.start, self._loop.stop

    def beat(self) -> None:
        pulse = self._pulse()
        news = worker_heartbeat(
            worker=self._worker,
            progress=pulse.progress,
            memory_bytes=self._process.memory_info().rss,
            in_hand=pulse.in_hand,
            statistics=pulse.statistics,
            memory_free_bytes=pulse.memory_free_bytes,
        )
        if news is None:
            logger.error("another process has taken the slot of %s; this one ends", self._worker.name)
            self._replaced()
            return
        pulse_beat(self._worker.name, data_dir=settings.DATA_DIR)
        if news != self._last:
            self._changed(news, self._last)
            self._last = news
