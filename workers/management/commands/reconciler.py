from __future__ import annotations

from typing import Any

import redis
from django.conf import settings
from django.core.management.base import BaseCommand

from assay.pulse import pulse_beat
from assay.schema import schema_wait
from scoring import dispatch
from workers.exports import ExportMaker
from workers.line_runner import LineRunner
from workers.loop import Loop
from workers.reconcile import TICK_SECONDS, Reconciler
from workers.stop_signals import StopSignals
from workers.webhooks import WebhookSender


class Command(BaseCommand):
    help = (
        "Take back what dead workers held, end jobs, answer request batches, tell webhooks, make exports. Any "
        "number may run; of the rounds, one at a time works."
    )

    def handle(self, **options: Any) -> None:
        stop = StopSignals()
        if not schema_wait(stopped=lambda: stop.asked):
            return
        reconciler = Reconciler()

        def step() -> None:
            reconciler.tick()
            pulse_beat("reconciler", data_dir=settings.DATA_DIR)

        loop = Loop("reconciler", step, seconds=TICK_SECONDS)

        def listen() -> bool:
            try:
                if dispatch.reconciler_woken():
                    loop.wake()
            except redis.RedisError:
                return False  # rounds come by themselves
            return True

        ear = Loop("wake-ups", listen, seconds=TICK_SECONDS)
        lines, webhooks, exports = LineRunner(), WebhookSender(), ExportMaker()
        for each in (loop, ear, lines, webhooks, exports):
            each.start()
        stop.wait()
        ear.stop()
        for part in (lines, loop, webhooks, exports):
            part.stop(timeout=3.0)
