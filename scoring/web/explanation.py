"""“Why this rank”: one pair of a job's ranking or of a kept request, with what the model read and what it counted."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.models import ScoreRequest, Stage
from scoring.selectors.explanations import neighbours, ranked_pair
from scoring.services.explanations import Asked, Explanation, item_explain, result_explain
from scoring.web.heat import HeatMap, ceiling_of, heat_map
from scoring.web.job_page import stage_or_404
from scoring.web.jobs import job_or_404

TEMPLATE = "explanation/explanation.html"


class ExplanationMixin(PrincipalMixin):
    waits_for_model: ClassVar[bool] = True

    def asked(self, endpoint: str) -> Asked:
        return Asked(principal=self.principal, endpoint=endpoint, caller=caller_of(self.request))

    def page(self, request: HttpRequest, **context: Any) -> HttpResponse:
        return render(request, TEMPLATE, {"view": self, **context})


class JobExplanationView(ExplanationMixin, View):
    """``?query=``, ``?document=`` and ``?with=`` (another document of the query) are ids of the uploaded files."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        job = job_or_404(self, pk)
        stage = stage_or_404(request, job)
        query, document, other = (request.GET.get(name, "") for name in ("query", "document", "with"))
        try:
            pair = ranked_pair(stage, query=query, document=document)
        except AssayError as error:
            raise Http404(error.message) from error
        context: dict[str, Any] = {"job": job, "stage": stage, "pair": pair, "others": neighbours(pair)}
        try:
            found = [self._explained(stage, query, each) for each in (document, other) if each]
        except AssayError as refusal:
            return self.page(request, **context, refusal=refusal.message)
        return self.page(request, **context, **shown(found))

    def _explained(self, stage: Stage, query: str, document: str) -> Explanation:
        return result_explain(asked=self.asked("page why"), stage=stage, query=query, document=document)


class ItemExplanationView(ExplanationMixin, View):
    required_scope: ClassVar[str] = Scope.SCORE

    def get(self, request: HttpRequest, pk: Any, index: int) -> HttpResponse:
        row = ScoreRequest.objects.for_team(self.principal.team).select_related("model").filter(pk=pk).first()
        if row is None:
            raise not_here("score request", pk)
        context: dict[str, Any] = {"row": row, "index": index}
        try:
            found = item_explain(asked=self.asked("page why"), row=row, index=index)
        except AssayError as refusal:
            if refusal.status == 404:
                raise Http404(refusal.message) from refusal
            return self.page(request, **context, refusal=refusal.message)
        return self.page(request, **context, **shown([found]))


def shown(found: list[Explanation]) -> dict[str, Any]:
    """What the templates draw: the heat maps of all have one range of colours."""
    ceiling = ceiling_of([each.why for each in found])
    maps: list[HeatMap | None] = [
        heat_map(each.why, ceiling, name=f"heat-{number}") for number, each in enumerate(found)
    ]
    return {"shown": list(zip(found, maps, strict=True)), "found": found[0], "ceiling": ceiling}
