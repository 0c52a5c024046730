"""What was measured of a comparison or an evaluation as a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from audit.services import audit_record
from scoring.export.comparisons import comparison_report
from scoring.export.evaluations import evaluation_report
from scoring.export.reports import REPORTS, Report, report_response
from scoring.selectors.evaluations import evaluation_arrays
from scoring.services.comparisons import comparison_measures
from scoring.web.comparisons import comparison_or_404
from scoring.web.evaluations import evaluation_or_404
from scoring.web.exports import Choice


def report_choices(noun: str, pk: Any) -> list[Choice]:
    """What the menu says before the click; ``noun`` is comparison or evaluation."""
    url = reverse(f"web:{noun}_export", args=[pk])
    return [
        Choice(f"{url}?format={name}", each.title, f"{each.about}, with their provenance", background=False)
        for name, each in REPORTS.items()
    ]


class ReportView(PrincipalMixin, View, ABC):
    required_scope: ClassVar[str] = Scope.JOBS
    verb: ClassVar[str]

    @abstractmethod
    def report(self) -> tuple[Any, Report]:
        """Of what, and what is told of it."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        name = request.GET.get("format", "")
        try:
            row, report = self.report()
        except AssayError as refusal:
            context = {"status": refusal.status, "message": refusal.message}
            return render(request, "error.html", context, status=refusal.status)
        if name not in REPORTS:
            raise Http404
        audit_record(verb=self.verb, principal=self.principal, target=row, detail={"format": name})
        return report_response(report, name)


class ComparisonReportView(ReportView):
    verb = "comparison.exported"

    def report(self) -> tuple[Any, Report]:
        comparison = comparison_or_404(self)
        return comparison, comparison_report(comparison, comparison_measures(comparison=comparison))


class EvaluationReportView(ReportView):
    verb = "evaluation.exported"

    def report(self) -> tuple[Any, Report]:
        evaluation = evaluation_or_404(self)
        return evaluation, evaluation_report(evaluation, evaluation_arrays(evaluation))
