"""What pages and htmx agree on."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

STOP_POLLING: Final = 286  # the status that htmx understands as "ask no more"


def wants_fragment(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def polled(request: HttpRequest, template: str, context: dict[str, Any], *, ended: bool) -> HttpResponse:
    """A fragment that renews itself; when there is nothing left to wait for, the whole page loads anew."""
    response = render(request, template, context, status=STOP_POLLING if ended else 200)
    if ended:
        response["HX-Refresh"] = "true"
    return response
