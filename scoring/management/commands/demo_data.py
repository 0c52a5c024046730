"""``manage.py demo_data``: the bundled models and the sample collection, for a platform that is to be tried."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from accounts.services import principal_system
from scoring.services.samples import samples_load


class Command(BaseCommand):
    help = "Register the bundled models and import the sample collection; what is there already stays."

    def handle(self, *args: Any, **options: Any) -> None:
        samples = samples_load(principal=principal_system())
        for uploaded in (samples.documents, samples.queries, samples.judgements):
            self.stdout.write(f"{uploaded.name}: {uploaded.counts['kept']} rows")
        call_command("register_bundled_models", stdout=self.stdout, stderr=self.stderr)
