"""What page views share."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.generic.base import View

from assay.api.principal import Principal, principal_of


class PrincipalMixin(LoginRequiredMixin, View):
    """A page for people whose role holds ``required_scope``; ``self.principal`` is who they are."""

    required_scope: ClassVar[str | None] = None
    principal: Principal

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return self.handle_no_permission()
        self.principal = principal_of(request)
        if self.required_scope is not None and not self.principal.may(self.required_scope):
            raise PermissionDenied(f"This page needs the scope '{self.required_scope}', which your role does not have.")
        return super().dispatch(request, *args, **kwargs)


class FragmentMixin:
    """Answers an htmx request with ``fragment_name`` alone, any other with the whole page."""

    template_name: str
    fragment_name: ClassVar[str]
    request: HttpRequest

    def get_template_names(self) -> list[str]:
        return [self.fragment_name if getattr(self.request, "htmx", False) else self.template_name]


def reload_page(to: str) -> HttpResponse:
    """Tell htmx to load another page as a whole."""
    return HttpResponse(status=204, headers={"HX-Redirect": to})
