from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import BaseCommand

from workers.loop import Loop
from workers.reconcile import TICK_SECONDS, Reconciler


class Command(BaseCommand):
    help = (
        "Take back what dead workers held, end jobs whose chunks have ended. Any number may run; one at a time works."
    )

    def handle(self, **options: Any) -> None:
        signals = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        loop = Loop("reconciler", Reconciler().tick, seconds=TICK_SECONDS)
        loop.start()
        signal.sigwait(signals)
        loop.stop(timeout=8.0)
