"""A secret that exists in one answer and nowhere afterwards."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def shown_once(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """No cache on the way, nor the browser's, keeps the page."""
    response = render(request, template, context)
    response["Cache-Control"] = "no-store"
    return response
