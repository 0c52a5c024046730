"""Django's ``migrate``, one at a time: two that start together apply every migration once."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.commands.migrate import Command as MigrateCommand

from assay.database import only_one

MIGRATION_LOCK: Final = 0x41737361_7A  # any number that nothing else in this database uses


class Command(MigrateCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        # What is still to be done is looked up inside: whoever had to wait finds it done.
        with only_one(MIGRATION_LOCK, wait=True):
            super().handle(*args, **options)
