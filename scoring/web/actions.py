"""Buttons: a POST that does one thing, says what came of it, and goes back to a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin


class ActionView(PrincipalMixin, ABC):
    http_method_names: ClassVar[list[str]] = ["post"]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            messages.success(request, self.act(**kwargs))
        except AssayError as refusal:
            messages.error(request, refusal.message)
        return HttpResponseRedirect(self.after(**kwargs))

    @abstractmethod
    def act(self, **kwargs: Any) -> str:
        """Do it, and return the sentence that says so. A refusal by a service becomes a message by itself."""

    @abstractmethod
    def after(self, **kwargs: Any) -> str:
        """The address to go to, after success and refusal alike."""
