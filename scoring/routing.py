"""Which worker answers a synchronous request: the one whose caches know its documents, unless it is clearly busier.

A large request whose pairs do not depend on each other is split over all workers that have the same model in force.
Nobody ready: the model is asked for, and its cold policy says whether the caller waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
from django.conf import settings
from django.db import Error as AnyDatabaseError

from assay.errors import AssayError
from scoring.affinity import digests, preferred, shares, weights
from scoring.dispatch import Taken, Target, loads, model_queue, no_worker, worker_queue
from scoring.gathering import Part
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncRequest
from scoring.scatter import share_of
from scoring.selectors.placements import placement_outlook
from scoring.selectors.routes import Route, routes_ready, workers_answering
from scoring.selectors.workers import workers_alive
from scoring.services.placements import model_demand

FRESH_SECONDS: Final = 0.5
SCATTER_DOCUMENTS: Final = 64  # a part should be worth a message of its own
CLEARLY_MORE: Final = 64  # pairs; fewer are not worth leaving a warm cache
TEXT_CHARACTERS: Final = 32  # what a document costs beside its length, in characters

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """What was read from the database, by key, for FRESH_SECONDS: the cost of routing does not grow with traffic."""

    def __init__(self, read: Callable[[str], Value]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Value]] = {}

    def get(self, key: str = "", *, afresh: bool = False) -> Value:
        """``afresh``: read after this call began."""
        since = time.monotonic() - (0.0 if afresh else FRESH_SECONDS)
        with self._lock:  # whoever comes meanwhile shares this read
            if key not in self._kept or self._kept[key][0] < since:
                at = time.monotonic()
                self._kept[key] = at, self._read(key)
            return self._kept[key][1]


ready = Kept(lambda model_id: routes_ready(model_id=model_id))
answering = Kept(lambda _: workers_answering())


@dataclass(frozen=True, slots=True)
class ModelRouter:
    """Routes the parts of one request for ``model``."""

    model: ScoringModel

    def plan(self, call: SyncRequest, *, whole: bool = False) -> list[Part]:
        """Where ``call`` goes at first, in one part or several.

        Raises AssayError 503 ``no_worker``, ``model_not_loaded`` (cold, and not to be waited for),
        ``model_load_failed``.
        """
        routes = self._ready()
        if not routes:
            target = self._cold()
            return [Part(call, target, cold=True)]
        if not whole and (parts := self._split(call, routes)):
            return parts
        return [Part(call, self._best(call, routes))]

    def elsewhere(self, part: Part) -> None:
        """Another worker; else whoever of those asked looks into the model's queue; else as if the request were new."""
        routes = self._ready(afresh=True)
        others = [route for route in routes if route.queue not in part.asked]
        if others:
            part.target = self._best(part.call, others)
        elif routes:
            part.target = Target(queue=model_queue(self.model.pk))
        else:
            part.target, part.cold = self._cold(), True

    def cold_over(self) -> bool:
        if self._ready():
            return True
        self._hopeful()
        return False

    def alive(self, taken: Taken) -> bool:
        try:
            return answering.get().get(taken.worker_id) == taken.boot_id
        except AnyDatabaseError:
            return True  # nobody can tell; the deadline ends it

    def _ready(self, *, afresh: bool = False) -> list[Route]:
        return ready.get(str(self.model.pk), afresh=afresh)

    def _best(self, call: SyncRequest, routes: Sequence[Route]) -> Target:
        first, *others = (routes[place] for place in preferred(self._weights(call, routes)))
        if others and _clearly_more(*loads([first.queue, others[0].queue])):
            return Target(queue=others[0].queue)
        return Target(queue=first.queue)

    def _weights(self, call: SyncRequest, routes: Sequence[Route]) -> Weights:
        """By documents, whose embeddings workers keep; of a generative model, they keep the beginnings of prompts."""
        queries_first = self.model.kind == ModelKind.GENERATIVE and not call.options.item_first
        texts = (call.query_ids or call.queries) if queries_first else (call.document_ids or call.documents)
        return weights(digests(texts), [route.worker_id for route in routes])

    def _split(self, call: SyncRequest, routes: Sequence[Route]) -> list[Part]:
        """One part for each of the workers that are worth it; none, if the request is better left whole."""
        documents = call.document_ids or call.documents
        if self.model.kind == ModelKind.LISTWISE or call.pairing != "matrix" or len(routes) < 2:
            return []
        content, first, of = np.unique(digests(documents), return_index=True, return_inverse=True)
        most = len(content) // SCATTER_DOCUMENTS
        if most < 2:
            return []
        order = [routes[place] for place in preferred(weights(content, [route.worker_id for route in routes]))]
        alike = [route for route in order if route.version == order[0].version]
        busy = loads([route.queue for route in alike])
        chosen = [route for route, load in zip(alike, busy, strict=True) if not _clearly_more(load, min(busy))][:most]
        if len(chosen) < 2:
            return []
        sizes = np.array([len(documents[place]) + TEXT_CHARACTERS for place in first])
        # Equal documents stay together: they are encoded once.
        owner = shares(weights(content, [route.worker_id for route in chosen]), sizes)[of]  # [N]
        places = [np.flatnonzero(owner == worker).tolist() for worker in range(len(chosen))]
        return [
            Part(share_of(call, part), Target(queue=route.queue), documents=part)
            for route, part in zip(chosen, places, strict=True)
            if part
        ]

    def _cold(self) -> Target:
        """Ask for the model, and wait in its queue if its policy is to wait."""
        if not workers_alive().exists():
            raise no_worker(self.model.name, "no worker is running", queue=model_queue(self.model.pk))
        model_demand(model=self.model)
        self._hopeful(waits=self.model.waits_when_cold)
        return Target(
            queue=model_queue(self.model.pk), patience=settings.COLD_WAIT_SECONDS, most=settings.COLD_WAITERS
        )

