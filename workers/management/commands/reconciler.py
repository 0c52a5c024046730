from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from workers.loop import Loop
from workers.reconcile import TICK_SECONDS, Reconciler
from workers.stop_signals import StopSignals


class Command(BaseCommand):
    help = (
        "Take back what dead workers held, end jobs whose chunks have ended. Any number may run; one at a time works."
    )

    def handle(self, **options: Any) -> None:
        stop = StopSignals()
        loop = Loop("reconciler", Reconciler().tick, seconds=TICK_SECONDS)
        loop.start()
        stop.wait()
        loop.stop(timeout=8.0)
