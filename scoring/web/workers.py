"""Workers, live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.generic import TemplateView
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import Transition, Worker
from scoring.selectors.history import worker_history
from scoring.selectors.placements import PlacementView, placements_unclaimed, workers_with_placements
from scoring.selectors.workers import worker_states, workers_alive
from scoring.services.holds import worker_drain, worker_maintain, worker_release, worker_resume
from scoring.snapshots import Snapshot
from scoring.states import PlacementState, WorkerHold, WorkerState
from scoring.web.actions import ActionView
from scoring.web.figures import line_chart
from scoring.web.htmx import wants_fragment
from scoring.web.paging import SayingPaginator

# Counters of the engine that tell a person something, in the order shown.
COUNTERS = (
    ("requests_in_flight", "requests in flight"),
    ("waiting_requests", "waiting"),
    ("sequences", "sequences encoded"),
    ("tokens", "tokens"),
    ("truncations", "texts cut"),
    ("dropped", "dropped"),
    ("maxsim_fallbacks", "MaxSim fallbacks"),
    ("label_fallbacks", "label fallbacks"),
    ("out_of_memory", "out of memory"),
)

# Caches in the order shown: the engine's name and a title.
CACHES = (
    ("document_cache", "Document cache, memory"),
    ("device_cache", "Document cache, GPU"),
    ("disk_cache", "Document cache, disk"),
    ("query_cache", "Query cache"),
    ("prefix_cache", "Prefix cache"),
)


WORKERS_PER_PAGE = 20
LOG_SHOWN = 20
BUTTONS = (("drain", "Drain"), ("maintenance", "Maintenance"))
BUTTONS_OF_HELD: dict[str, tuple[tuple[str, str], ...]] = {
    WorkerHold.DRAIN: (("resume", "Resume"), ("maintenance", "Maintenance")),
    WorkerHold.MAINTENANCE: (("resume", "Resume"), ("drain", "Drain")),
    WorkerHold.QUARANTINE: (("release", "Release from quarantine"),),
}
ACTIONS: dict[str, Callable[..., Worker]] = {
    "drain": worker_drain,
    "maintenance": worker_maintain,
    "resume": worker_resume,
    "release": worker_release,
}


@dataclass(frozen=True, slots=True)
class CacheLine:
    title: str
    statistics: dict[str, int]


@dataclass(frozen=True, slots=True)
class WorkerCard:
    worker: Worker
    alive: bool

    @property
    def placements(self) -> list[PlacementView]:
        shown = [row for row in self.worker.placements.all() if row.present or row.state != PlacementState.UNLOADED]
        return [PlacementView(row) for row in shown]

    @property
    def claimed_bytes(self) -> int:
        return sum(row.placement.claimed_bytes for row in self.placements)

    @property
    def counters(self) -> list[tuple[str, int]]:
        engine = self.worker.statistics.get("engine", {})
        return [(title, engine[name]) for name, title in COUNTERS if engine.get(name)]

    @property
    def caches(self) -> list[CacheLine]:
        """Those that hold or held something."""
        engine = self.worker.statistics.get("engine", {})
        lines = [CacheLine(title, engine.get(name) or {}) for name, title in CACHES]
        return [line for line in lines if any(line.statistics.get(part) for part in ("entries", "hits", "failures"))]

    @property
    def problem(self) -> str:
        return self.worker.statistics.get("problem", "")


@dataclass(frozen=True, slots=True)
class FleetReading:
    cards: list[WorkerCard]
    states: dict[WorkerState, int]
    unclaimed: list[PlacementView]


def _read_fleet() -> FleetReading:
    alive = set(workers_alive().values_list("pk", flat=True))
    cards = [WorkerCard(worker, worker.pk in alive) for worker in workers_with_placements()]
    return FleetReading(cards, worker_states(), placements_unclaimed())


fleet_reading: Final = Snapshot(_read_fleet)  # however many tabs are open


class WorkerListView(PrincipalMixin, View):
    """The list renews itself by htmx, as a fragment: a page of cards, of all workers or of those in one state."""

    required_scope: ClassVar[str] = Scope.MODELS_READ

    def get(self, request: HttpRequest) -> HttpResponse:
        template = "workers/_workers.html" if wants_fragment(request) else "workers/list.html"
        reading, state = fleet_reading.get(), request.GET.get("state", "")
        shown = [card for card in reading.cards if card.worker.state == state or state not in WorkerState.values]
        page = SayingPaginator(shown, WORKERS_PER_PAGE).get_page(request.GET.get("page"))
        context = {
            "cards": page.object_list,
            "page": page,
            "states": reading.states,
            "state": state,
            "unclaimed": reading.unclaimed,
            "view": self,
        }
        return render(request, template, context)


class HoldForm(forms.Form):
    reason = forms.CharField(max_length=200, help_text="For whoever looks at the worker next.")
    until = forms.DateTimeField(
        label="Ends at", required=False, help_text="Maintenance only, in UTC; empty: when somebody resumes it.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )  # fmt: skip


class WorkerDetailView(PrincipalMixin, TemplateView):
    """One worker: what keeps it from work, the log of its states, and what administrators may do."""

    required_scope: ClassVar[str] = Scope.MODELS_READ
    template_name = "workers/detail.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        worker = get_object_or_404(Worker, pk=self.kwargs["pk"])
        log = Transition.objects.filter(entity="worker", entity_id=str(worker.pk)).order_by("-id")[:LOG_SHOWN]
        buttons = BUTTONS_OF_HELD.get(worker.hold, BUTTONS) if self.principal.may(Scope.ADMIN) else ()
        history = worker_history(worker)
        charts = [
            line_chart("Texts encoded", history["rate"], unit="per second"),
            line_chart("Memory, resident", history["memory"], unit="bytes"),
            line_chart("Memory that models claim", history["claimed"], unit="bytes"),
            line_chart("In flight", history["in_flight"], unit="requests and chunks"),
        ]
        return super().get_context_data(
            worker=worker, log=log, buttons=buttons, form=HoldForm(), charts=charts, **kwargs
        )


class WorkerActionView(ActionView):
    required_scope: ClassVar[str] = Scope.ADMIN

    def act(self) -> str:
        action = ACTIONS.get(self.kwargs["action"])
        if action is None:
            raise Http404
        worker, form = get_object_or_404(Worker, pk=self.kwargs["pk"]), HoldForm(self.request.POST)
        if not form.is_valid():
            field, errors = next(iter(form.errors.items()))
            raise AssayError("invalid_hold", f"{field.capitalize()}: {errors[0]}", status=422, param=field)
        until = {"until": form.cleaned_data["until"]} if action is worker_maintain else {}
        action(principal=self.principal, worker=worker, reason=form.cleaned_data["reason"], **until)
        return f"Worker “{worker.name}”: {worker.get_state_display().lower()}."

    def after(self) -> str:
        return reverse("web:worker_detail", args=[self.kwargs["pk"]])
