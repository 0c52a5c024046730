"""``manage.py demo``: start everything, run the main job over HTTP, stop everything."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, NoReturn

import httpx
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import ApiToken
from accounts.scopes import Scope
from accounts.services import team_default, token_create, token_revoke
from assay.management.commands.serve import database_prepare, local_platform
from assay.supervisor import PlatformError, free_port
from scoring.demo import Demo, DemoFailed

TOKEN_NAME = "demo"


class Command(BaseCommand):
    drawn = ""
    help = "Run the main job end to end on the sample collection, on servers of its own, and stop them again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--workers", type=int, default=1, help="number of workers (default: 1)")

    def handle(self, *args: Any, workers: int, **options: Any) -> None:
        signal.signal(signal.SIGTERM, _interrupted)
        try:
            database_prepare()
            # A port of its own: the demo must also run beside a platform that is up elsewhere.
            with local_platform(workers=workers, port=free_port(settings.WEB_HOST)) as platform:
                self.stdout.write(f"Starting web, {workers} worker{'s' * (workers > 1)} and the reconciler …")
                platform.wait_until_ready()
                self.stdout.write("Registering models; each proves itself on a worker first")
                call_command("register_bundled_models", stdout=self.stdout, stderr=self.stderr)
                self._run(platform.url)
        except (PlatformError, DemoFailed) as error:
            raise CommandError(str(error)) from error
        self.stdout.write("Everything is stopped.")

    def _run(self, url: str) -> None:
        for left_over in ApiToken.objects.filter(name=TOKEN_NAME, enabled=True, created_by=None):
            token_revoke(token=left_over, actor=None)  # of a demo that was killed
        token, secret = token_create(team=team_default(), name=TOKEN_NAME, scopes=[Scope.SCORE, Scope.JOBS])
        try:
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=120) as client:
                Demo(client, settings.EXAMPLES_DIR, self.stdout.write, self._redraw).run()
        finally:
            token_revoke(token=token, actor=None)

    def _redraw(self, line: str) -> None:
        """On a terminal the line replaces itself; in a log only a changed one is written."""
        if self.stdout.isatty():
            self.stdout.write("\r" + line, ending="")
        elif line != self.drawn:
            self.stdout.write(line)
        self.drawn = line
        self.stdout.flush()


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
