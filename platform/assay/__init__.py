"""The Django project: settings, URLs, the Celery application and what every other app stands on."""

from assay.celery import app as celery_app

__all__ = ["celery_app"]
