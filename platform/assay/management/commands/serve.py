"""The whole platform on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connection
from django.urls import reverse

from accounts.one_time import ticket_create
from assay.database import unreachable
from assay.supervisor import Platform, PlatformError


class Command(BaseCommand):
    help = "Start the web server, the reconciler and the workers on this machine; Ctrl-C stops them all."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--workers", type=int, default=1, help="number of GPU workers (default: 1)")
        parser.add_argument(
            "--port", type=int, default=settings.WEB_PORT, help=f"port of the web server (default: {settings.WEB_PORT})"
        )
        parser.add_argument(
            "--empty", action="store_true", help="do not register the bundled models and the example data"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            database_prepare()
            with local_platform(workers=options["workers"], port=options["port"]) as platform:
                self.stdout.write("Starting …")
                platform.wait_until_ready()
                if not options["empty"]:
                    call_command("demo_data")
                if options["workers"]:
                    call_command("wait_for_worker", stdout=self.stdout, stderr=self.stderr)
                self._greet(platform)
                threading.Event().wait()
        except PlatformError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def _greet(self, platform: Platform) -> None:
        admin, new = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
        if new:
            admin.set_unusable_password()
            admin.save(update_fields=["password"])
        login = platform.url + reverse("one_time_login", args=[ticket_create(admin)])
        self.stdout.write(f"Assay runs at     {platform.url}")
        self.stdout.write(f"Log in as admin   {login}  (works once)")
        self.stdout.write(f"Logs              {platform.log_path('*')}")
        self.stdout.write("Ctrl-C stops everything.")


def local_platform(*, workers: int, port: int) -> Platform:
    """The platform as this process's settings describe it, not started yet."""
    return Platform(
        data_dir=Path(settings.DATA_DIR),
        host=settings.WEB_HOST,
        port=port,
        workers=workers,
        web_processes=settings.WEB_PROCESSES,
        environment={
            "DATABASE_URL": settings.DATABASE_URL,
            "REDIS_URL": settings.REDIS_URL,
            "WEB_PORT": str(port),
        },
    )


def database_prepare() -> None:
    """Bring the tables up to date. Raises PlatformError naming the server if it cannot be reached."""
    try:
        connection.ensure_connection()
    except OperationalError as error:
        raise PlatformError(unreachable(error)) from error
    call_command("migrate", verbosity=0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
