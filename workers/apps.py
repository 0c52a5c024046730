from __future__ import annotations

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """Here for the commands and the Celery tasks; loading the app imports no torch."""

    name = "workers"
