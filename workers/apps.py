from __future__ import annotations

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """Only the management commands and the tasks: importing this app does not import torch."""

    name = "workers"
