"""Registered models: list, detail, and what may be done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any, ClassVar, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.generic import TemplateView
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from audit.models import AuditEvent
from scoring.backpressure import concurrency_in_force
from scoring.models import Errand, ModelAlias, ScoringModel, Transition
from scoring.selectors.history import model_history, model_speed
from scoring.selectors.models import model_open_jobs, model_own_name, models_with_placements
from scoring.selectors.placements import maxsim_in_force, placement_outlook, placements_of_model
from scoring.services.errands import benchmark_ask
from scoring.services.model_names import alias_delete, alias_point
from scoring.services.placements import model_load, model_reload, model_unload
from scoring.services.registry import model_change, model_disable, model_self_test
from scoring.services.thresholds import model_advice
from scoring.web.actions import ActionView
from scoring.web.figures import line_chart
from scoring.web.model_forms import BenchmarkForm, PlacingForm, SettingsForm

LOG_SHOWN: Final = 20
BENCHMARKS_SHOWN: Final = 10
# What people do that is no change of state, and so is found in the audit log alone.
DEEDS: Final = (
    "model.changed", "model.load_requested", "model.unload_requested", "model.reload_requested",
    "model.alias_pointed", "model.alias_deleted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogEntry:
    at: datetime
    what: str
    detail: str
    actor: str


def model_or_404(name: str) -> Any:
    model = models_with_placements().filter(name=model_own_name(name)).first()
    if model is None:
        raise not_here("model", name)
    return model


BUTTONS: Final = (
    ("load", "Load"),
    ("unload", "Unload"),
    ("reload", "Reload"),
    ("self-test", "Run the self-test"),
    ("disable", "Disable"),
)


class ModelListView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.MODELS_READ
    template_name = "models/list.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        may_change = self.principal.may(Scope.MODELS_WRITE)
        in_force = maxsim_in_force()
        models = [(model, in_force.get(model.pk, "")) for model in models_with_placements()]
        return super().get_context_data(models=models, may_change=may_change, **kwargs)


class ModelDetailView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.MODELS_READ
    template_name = "models/detail.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        model = model_or_404(self.kwargs["name"])
        return super().get_context_data(
            model=model,
            placements=placements_of_model(model),
            log=model_log(model),
            actions=BUTTONS,
            has_maxsim=model.has_maxsim,
            outlook=None if model.ready_count else placement_outlook(model),
            concurrency=concurrency_in_force(model),
            placing=PlacingForm(instance=model, auto_id="placing_%s"),
            settings=SettingsForm(instance=model, auto_id="settings_%s"),
            benchmark=BenchmarkForm(auto_id="benchmark_%s"),
            benchmarks=Errand.objects.filter(model=model)
            .select_related("worker")
            .order_by("-created_at")[:BENCHMARKS_SHOWN],
            charts=memory_charts(model),
            speed=model_speed(model),
            tested=tested_pairs(model),
            may_change=self.principal.may(Scope.MODELS_WRITE),
            advices=model_advice(self.principal, model) if self.principal.may(Scope.JOBS) else None,
            **kwargs,
        )


def memory_charts(model: ScoringModel) -> list[Any]:
    return [line_chart(f"Memory, {what}", points, unit="bytes") for what, points in model_history(model).items()]


def tested_pairs(model: ScoringModel) -> list[tuple[dict[str, str], float | None]]:
    """The self-test's pairs with their scores; older reports hold the scores alone."""
    report = model.self_test_report or {}
    pairs, scores = report.get("pairs") or [], report.get("golden_scores") or []
    return list(zip_longest(pairs, scores))


def model_log(model: ScoringModel) -> list[LogEntry]:
    """Changes of state and what people asked for, newest first."""
    states = Transition.objects.filter(entity="scoringmodel", entity_id=str(model.pk)).order_by("-id")[:LOG_SHOWN]
    deeds = AuditEvent.objects.filter(
        target_type=model._meta.label_lower, target_id=str(model.pk), verb__in=DEEDS
    ).order_by("-id")[:LOG_SHOWN]
    entries = [LogEntry(entry.at, entry.to_state.replace("_", " "), entry.reason, entry.actor) for entry in states]
    entries += [LogEntry(deed.at, deed.sentence, _changes(deed), deed.actor_label) for deed in deeds]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:LOG_SHOWN]


def _changes(deed: AuditEvent) -> str:
    if deed.verb.startswith("model.alias"):
        before = deed.detail.get("from")
        return f"{deed.detail.get('alias', '')}{f', before at {before}' if before and 'to' in deed.detail else ''}"
    if deed.verb != "model.changed":
        return ""
    return ", ".join(
        f"{name.replace('_', ' ')}: {_word(old)} → {_word(new)}" for name, (old, new) in deed.detail.items()
    )


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in (None, "", []) else f"{value}"[:80]


class ModelPlacementsView(PrincipalMixin, View):
    """What is in force on each worker; renews itself."""

    required_scope: ClassVar[str] = Scope.MODELS_READ

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        model = model_or_404(name)
        context = {"model": model, "placements": placements_of_model(model)}
        return render(request, "models/_placements.html", context)


def checked(form: Any) -> dict[str, Any]:
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        raise AssayError("invalid_model", f"{form[field].label}: {errors[0]}", status=422, param=field)
    fields: dict[str, Any] = form.cleaned_data
    return fields


class OfModelView(ActionView):
    """Does something with a model and goes back to its page, or to the list it was asked from."""

    required_scope: ClassVar[str] = Scope.MODELS_WRITE

    def after(self) -> str:
        if self.request.POST.get("back") == "list":
            return reverse("web:model_list")
        return reverse("web:model_detail", args=[self.kwargs["name"]])


class ModelPlacingView(OfModelView):
    def act(self) -> str:
        model = model_or_404(self.kwargs["name"])
        model_change(principal=self.principal, model=model, **checked(PlacingForm(self.request.POST, instance=model)))
        return f"Workers follow the new settings of “{model.name}” within seconds."


class ModelSettingsView(OfModelView):
    def act(self) -> str:
        model = model_or_404(self.kwargs["name"])
        before = model.state
        model_change(principal=self.principal, model=model, **checked(SettingsForm(self.request.POST, instance=model)))
        if model.state != before:
            return f"“{model.name}” waits for a new self-test, as what decides its scores was changed."
        return f"The settings of “{model.name}” are saved."


class ModelBenchmarkView(OfModelView):
    def act(self) -> str:
        model = model_or_404(self.kwargs["name"])
        benchmark_ask(principal=self.principal, model=model, **checked(BenchmarkForm(self.request.POST)))
        return f"A worker that holds “{model.name}” measures it now; load this page again for the result."


class AliasPointView(OfModelView):
    """An alias, made or moved here."""

    def act(self) -> str:
        model = model_or_404(self.kwargs["name"])
        alias = alias_point(principal=self.principal, name=self.request.POST.get("alias", "").strip(), model=model)
        return f"“{alias}” points at “{model.name}” now; whoever asks by it gets this model within a second."


class AliasDeleteView(OfModelView):
    def act(self) -> str:
        alias = ModelAlias.objects.filter(name=self.kwargs["alias"], model__name=self.kwargs["name"]).first()
        if alias is None:
            raise Http404
        alias_delete(principal=self.principal, alias=alias)
        return f"The alias “{self.kwargs['alias']}” is deleted; requests that still name it are refused."


def _asked(count: int, verb: str, model: ScoringModel) -> str:
    return f"{count} worker{'s' if count != 1 else ''} asked to {verb} “{model.name}”."


def _load(principal: Principal, model: ScoringModel) -> str:
    return _asked(model_load(principal=principal, model=model), "load", model)


def _unload(principal: Principal, model: ScoringModel) -> str:
    asked = _asked(model_unload(principal=principal, model=model), "unload", model)
    return f"{asked} It is loaded again when somebody uses it."


def _reload(principal: Principal, model: ScoringModel) -> str:
    count = model_reload(principal=principal, model=model)
    return (
        f"{count} worker{'s' if count != 1 else ''} asked to reload “{model.name}”. The old weights serve until then."
    )


def _self_test(principal: Principal, model: ScoringModel) -> str:
    model_self_test(principal=principal, model=model)
    return f"“{model.name}” waits for a worker to test it; it is served again when it passes."


def _disable(principal: Principal, model: ScoringModel) -> str:
    model_disable(principal=principal, model=model)
    waiting = model_open_jobs(model, principal=principal).count
    jobs = f" {waiting:,} open job{'s wait' if waiting > 1 else ' waits'} for that." if waiting else ""
    return f"“{model.name}” is disabled. A self-test brings it back.{jobs}"


def _gpu_maxsim(principal: Principal, model: ScoringModel) -> str:
    model_change(principal=principal, model=model, gpu_maxsim=not model.gpu_maxsim)
    switched = "on" if model.gpu_maxsim else "off"
    return f"GPU MaxSim of “{model.name}” is switched {switched}; below you see when each worker follows."


ACTIONS: Final[dict[str, Callable[[Principal, ScoringModel], str]]] = {
    "load": _load,
    "unload": _unload,
    "reload": _reload,
    "self-test": _self_test,
    "disable": _disable,
    "gpu-maxsim": _gpu_maxsim,
}


class ModelActionView(OfModelView):
    def act(self) -> str:
        action = ACTIONS.get(self.kwargs["action"])
        if action is None:
            raise Http404
        return action(self.principal, model_or_404(self.kwargs["name"]))
