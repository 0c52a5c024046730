"""Workers, live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


def worker_cards() -> list[WorkerCard]:
    alive = set(workers_alive().values_list("pk", flat=True))
    return [WorkerCard(worker, worker.pk in alive) for worker in workers_with_placements()]


class WorkerListView(PrincipalMixin, View):
    """The list renews itself by htmx, as a fragment."""

    required_scope: ClassVar[str] = Scope.MODELS_READ

    def get(self, request: HttpRequest) -> HttpResponse:
        template = "workers/_workers.html" if wants_fragment(request) else "workers/list.html"
        return render(request, template, {"cards": worker_cards(), "view": self})
