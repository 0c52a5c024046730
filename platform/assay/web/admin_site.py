"""The administration's site: Django's, in the theme of django-unfold, under a security policy of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from csp.constants import UNSAFE_EVAL, UNSAFE_INLINE
from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from unfold.sites import UnfoldAdminSite

# The theme's menus are written in Alpine, whose attributes are evaluated as JavaScript and set style attributes. Still
# scripts come from our own files only, and no style element of a page counts.
POLICY: Final = {"script-src": [UNSAFE_EVAL], "style-src-attr": [UNSAFE_INLINE]}


class AdminSite(UnfoldAdminSite):
    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Without colours the theme writes no style element; ours are in static/admin-theme.css."""
        return {**super().each_context(request), "colors": {}}

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        return csp_update(POLICY)(super().admin_view(view, cacheable))

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        login: Any = csp_update(POLICY)(super().login)
        response: HttpResponse = login(request, extra_context)
        return response
