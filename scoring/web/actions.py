"""Buttons: a POST that does one thing, says what came of it, and goes back to a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin


class ActionView(PrincipalMixin, ABC):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            messages.success(request, self.act())
        except AssayError as refusal:
            messages.error(request, refusal.message)
        return HttpResponseRedirect(self.after())

    @abstractmethod
    def act(self) -> str:
        """Do it, and return the sentence that says so. A refusal by a service becomes a message by itself."""

    @abstractmethod
    def after(self) -> str:
        """The address to go to, after success and refusal alike."""
