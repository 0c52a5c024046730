"""Addresses of the domain: the compatibility endpoints at the root, the resources under /api/v1/, the pages."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("", include("scoring.api.urls")),
    path("", include("scoring.web.urls")),
]
