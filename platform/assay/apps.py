from __future__ import annotations

from django.apps import AppConfig


class AssayConfig(AppConfig):
    name = "assay"
