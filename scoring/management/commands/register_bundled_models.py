"""``manage.py register_bundled_models``: the three models that come with the platform, self-tested on a worker."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.services import principal_system
from scoring.models import ScoringModel
from scoring.services.bundled import bundled_register
from scoring.states import ModelState


class Command(BaseCommand):
    help = "Register the models that come with the platform and, unless told not to, wait for their self-tests."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-wait", action="store_true", help="do not wait for the self-tests")
        parser.add_argument("--timeout", type=float, default=600.0, help="seconds to wait for all self-tests")

    def handle(self, *args: Any, no_wait: bool, timeout: float, **options: Any) -> None:
        models = bundled_register(principal=principal_system())
        if not no_wait:
            self._wait(models, timeout)
        for model in models:
            model.refresh_from_db()
            self.stdout.write(f"{model.name:14} {model.kind:17} {model.get_state_display()}")
            self._complain(model)

    def _wait(self, models: list[ScoringModel], timeout: float) -> None:
        end = time.monotonic() + timeout
        unfinished = ScoringModel.objects.filter(
            pk__in=[model.pk for model in models], state__in=(ModelState.REGISTERED, ModelState.TESTING)
        )
        while waiting := list(unfinished.values_list("name", flat=True)):
            if time.monotonic() > end:
                raise CommandError(
                    f"The self-test of {', '.join(waiting)} did not end within {timeout:.0f} s. "
                    "A self-test runs on a worker (`manage.py gpu_worker`): is one running, and has it time for it? "
                    "`manage.py serve --empty` starts without these models."
                )
            time.sleep(0.25)

    def _complain(self, model: ScoringModel) -> None:
        for check in (model.self_test_report or {}).get("checks", []):
            if not check["passed"]:
                self.stderr.write(f"  {check['name']}: {check['detail']}")
