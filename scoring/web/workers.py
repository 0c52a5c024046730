"""Workers, live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.models import Worker
from scoring.selectors.placements import PlacementView, workers_with_placements
from scoring.selectors.workers import workers_alive
from scoring.states import PlacementState
from scoring.web.htmx import wants_fragment

# Counters of the engine that tell a person something, in the order shown.
COUNTERS = (
    ("requests_in_flight", "requests in flight"),
    ("waiting_requests", "waiting"),
    ("sequences", "sequences encoded"),
    ("tokens", "tokens"),
    ("truncations", "texts cut"),
    ("dropped", "dropped"),
    ("maxsim_fallbacks", "MaxSim fallbacks"),
    ("out_of_memory", "out of memory"),
)


@dataclass(frozen=True, slots=True)
class WorkerCard:
    worker: Worker
    alive: bool

    @property
    def placements(self) -> list[PlacementView]:
        shown = [row for row in self.worker.placements.all() if row.present or row.state != PlacementState.UNLOADED]
        return [PlacementView(row) for row in shown]

    @property
    def counters(self) -> list[tuple[str, int]]:
        engine = self.worker.statistics.get("engine", {})
        return [(title, engine[name]) for name, title in COUNTERS if engine.get(name)]

    @property
    def cache(self) -> dict[str, Any] | None:
        return self.worker.statistics.get("engine", {}).get("document_cache")


def worker_cards() -> list[WorkerCard]:
    alive = set(workers_alive().values_list("pk", flat=True))
    return [WorkerCard(worker, worker.pk in alive) for worker in workers_with_placements()]


class WorkerListView(PrincipalMixin, View):
    """The list renews itself by htmx, as a fragment."""

    required_scope: ClassVar[str] = Scope.MODELS_READ

    def get(self, request: HttpRequest) -> HttpResponse:
        template = "workers/_workers.html" if wants_fragment(request) else "workers/list.html"
        return render(request, template, {"cards": worker_cards(), "view": self})
