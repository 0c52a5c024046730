"""``manage.py wait_for_worker``: return once a worker takes work."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from scoring.selectors.workers import workers_alive


class Command(BaseCommand):
    help = "Wait until a worker is ready; if none gets ready in time, say so and go on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait at most (default: 60)")

    def handle(self, *args: Any, timeout: float, **options: Any) -> None:
        if workers_alive().exists():
            return
        self.stdout.write("Waiting for a worker …")
        give_up = time.monotonic() + timeout
        while not workers_alive().exists():
            if time.monotonic() > give_up:
                self.stderr.write(f"No worker got ready within {timeout:g} s; jobs wait for one. Its log says why.")
                return
            time.sleep(0.25)
