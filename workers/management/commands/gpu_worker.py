from __future__ import annotations

import atexit
import faulthandler
import os
import re
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from assay.schema import schema_wait
from workers.identity import NameRefused, worker_identity
from workers.process import WorkerProcess
from workers.stop_signals import StopSignals


class Command(BaseCommand):
    help = "Run one worker: it loads models, answers synchronous requests and works on jobs. SIGTERM drains it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="worker-1", help="unique per data folder (default: worker-1)")
        parser.add_argument("--device", default=settings.DEVICE, help="auto, cpu, cuda or cuda:N (default: DEVICE)")

    def handle(self, *, name: str, device: str, **options: Any) -> None:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise CommandError(f"--device is {device!r}; give auto, cpu, cuda or cuda:N.")
        faulthandler.enable()
        stop = StopSignals()
        try:
            with worker_identity(name, folder=settings.DATA_DIR / "workers") as worker_id:
                if not schema_wait(stopped=lambda: stop.asked):
                    return
                worker = WorkerProcess(worker_id=worker_id, name=name, device=device)
                worker.start()
                stop.wait()
                worker.drain()
        except NameRefused as error:
            raise CommandError(str(error)) from error
        atexit.register(leave, worker.exit_code)


def leave(code: int) -> None:
    """End without taking torch apart: that needs seconds, and aborts when a load is still running in its thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
