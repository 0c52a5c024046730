from __future__ import annotations

from django.apps import AppConfig


class ScoringConfig(AppConfig):
    name = "scoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from assay.doctor import register_check
        from assay.metrics import register_collector
        from scoring import verbs
        from scoring.doctor import queue_findings, worker_findings
        from scoring.metrics import DomainCollector

        verbs.register()
        register_collector(DomainCollector())
        register_check("queues", queue_findings)
        register_check("workers", worker_findings)
