"""The first page."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import reverse
from django.views.generic import RedirectView, TemplateView
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.selectors.home import jobs_ended, jobs_running, jobs_troubled, start_of
from scoring.selectors.models import models_with_placements
from scoring.services.samples import samples_load
from scoring.web.actions import ActionView
from scoring.web.htmx import polled


class HomeView(PrincipalMixin, TemplateView):
    template_name = "home.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = {}
        if self.principal.may(Scope.JOBS):
            context |= {
                "start": start_of(self.principal),
                "running": jobs_running(self.principal),
                "ended": jobs_ended(self.principal),
                "troubled": jobs_troubled(self.principal),
            }
        if self.principal.may(Scope.MODELS_READ):
            context["models"] = models_with_placements()
        return super().get_context_data(**context, **kwargs)


class RunningJobsView(PrincipalMixin, View):
    """The part of the first page that renews itself. When nothing runs any more, the page loads anew."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest) -> HttpResponse:
        running = list(jobs_running(self.principal))
        return polled(request, "_running.html", {"running": running}, ended=not running)


class SamplesView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        samples = samples_load(principal=self.principal)
        counts = samples.documents.counts["kept"], samples.queries.counts["kept"], samples.judgements.counts["kept"]
        return "The sample data is here: {:,} documents, {:,} queries, {:,} judgements.".format(*counts)

    def after(self) -> str:
        return reverse("web:home")


class FaviconView(RedirectView):
    def get_redirect_url(self, *args: Any, **kwargs: Any) -> str:
        return static("favicon.svg")
