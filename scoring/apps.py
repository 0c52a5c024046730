from __future__ import annotations

from django.apps import AppConfig


class ScoringConfig(AppConfig):
    name = "scoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from assay.metrics import register_collector
        from scoring import verbs
        from scoring.metrics import DomainCollector

        verbs.register()
        register_collector(DomainCollector())
