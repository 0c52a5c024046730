"""Registering a model: where it is, what a worker finds there, and the form that this fills in."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import Errand, ErrandKind
from scoring.services.errands import inspection_ask
from scoring.services.registry import model_register
from scoring.states import ErrandState
from scoring.web.htmx import polled, wants_fragment
from scoring.web.model_forms import InspectForm, RegisterForm, filled_in


class ModelNewView(PrincipalMixin, TemplateView):
    """The form itself, by hand; ``InspectionView`` shows it filled in."""

    required_scope: ClassVar[str] = Scope.MODELS_WRITE
    template_name = "models/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        kwargs.setdefault("inspect", InspectForm())
        kwargs.setdefault("form", RegisterForm(initial={"gpu_maxsim": True}))
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = RegisterForm(request.POST)
        if form.is_valid():
            try:
                model = model_register(principal=self.principal, **form.cleaned_data)
                return redirect("web:model_detail", name=model.name)
            except AssayError as refusal:
                form.refused(refusal)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class InspectView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.MODELS_WRITE
    template_name = "models/new.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        inspect = InspectForm(request.POST)
        if inspect.is_valid():
            try:
                errand = inspection_ask(principal=self.principal, **inspect.cleaned_data)
                return redirect("web:model_inspection", pk=errand.pk)
            except AssayError as refusal:
                inspect.add_error(refusal.param if refusal.param in inspect.fields else None, refusal.message)
        return self.render_to_response({"view": self, "inspect": inspect, "form": RegisterForm()}, status=422)


class InspectionView(ModelNewView):
    """What came of an inspection; while it waits or runs, a fragment that renews itself."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        errands = Errand.objects.for_team(self.principal.team).select_related("worker")
        errand = errands.filter(pk=kwargs["pk"], kind=ErrandKind.INSPECTION).first()
        if errand is None:
            raise Http404
        ended = ErrandState(errand.state).is_final
        if wants_fragment(request):
            return polled(request, "models/_inspection.html", {"errand": errand}, ended=ended)
        found = errand.state == ErrandState.DONE
        return self.render_to_response(
            self.get_context_data(
                errand=errand,
                inspect=InspectForm(initial=errand.given),
                form=RegisterForm(initial=filled_in(errand)) if found else None,
                estimate=sum(part["bytes"] for part in errand.found.get("estimate", {}).get("parts", ())),
            )
        )
