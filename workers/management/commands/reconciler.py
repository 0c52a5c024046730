from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from assay.pulse import pulse_beat
from assay.schema import schema_wait
from workers.loop import Loop
from workers.reconcile import TICK_SECONDS, Reconciler
from workers.stop_signals import StopSignals
from workers.webhooks import WebhookSender


class Command(BaseCommand):
    help = (
        "Take back what dead workers held, end jobs whose chunks have ended, tell webhooks of it. Any number may run; "
        "one at a time does the rounds."
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
        webhooks = WebhookSender()
        loop.start()
        webhooks.start()
        stop.wait()
        loop.stop(timeout=8.0)
        webhooks.stop(timeout=2.0)
