from __future__ import annotations

from django.apps import AppConfig

from assay.celery import app as celery_app

__all__ = ["AssayConfig", "celery_app"]  # made with the apps, so that every task belongs to it


class AssayConfig(AppConfig):
    name = "assay"
