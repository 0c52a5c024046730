from __future__ import annotations

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig as DjangoAdminConfig

from assay.celery import app as celery_app

__all__ = ["AdminConfig", "AssayConfig", "celery_app"]  # made with the apps, so that every task belongs to it


class AssayConfig(AppConfig):
    name = "assay"

    def ready(self) -> None:
        from assay.web.field_messages import field_messages_install

        field_messages_install()


class AdminConfig(DjangoAdminConfig):
    default = False
    default_site = "assay.web.admin_site.AdminSite"
