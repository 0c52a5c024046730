"""Who waits for a model to be loaded, and what they are told. Any thread asks, the host's alone answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock

from scoring.models import Placement, ScoringModel, Worker
from scoring.states import HELD_STATES, ModelState, PlacementDemand, PlacementState
from workers.faults import ModelUnavailable
from workers.held_models import HeldModels


@dataclass(frozen=True, slots=True)
class Failure:
    """Of the last load, as the placement's row told it."""

    count: int
    cause: str
    next_try: float  # time.monotonic()

    @property
    def lasts(self) -> bool:
        return self.next_try > time.monotonic()


class Waiters:
    """One future for each model, however many wait for it. Batch work only says what it needs, and asks again."""

    def __init__(self, *, worker: Worker, held: HeldModels, shut: Callable[[str], str]) -> None:
        """``shut``: why nothing is sent to the remote model of that name for now; empty if it is."""
        self._worker = worker
        self._held = held
        self._shut = shut
        self._lock = Lock()
        self._waiting: dict[uuid.UUID, Future[str]] = {}
        self._needed: set[uuid.UUID] = set()
        self._failures: Mapping[uuid.UUID, Failure] = {}

    def ask(self, model: ScoringModel, demand: PlacementDemand) -> Future[str]:
        """The engine's name for ``model`` once it is loaded as its row says, or ModelUnavailable."""
        with self._lock:
            if (held := self._held.get(model.pk)) and held.serves(model):
                if demand == PlacementDemand.BATCH and (why := self._shut(held.spec.name)):
                    return _answered(ModelUnavailable(why))
                return _answered(held.spec.name)
            if (failure := self._failures.get(model.pk)) and failure.lasts:
                return _answered(ModelUnavailable(failure.cause, failure.count))
            if demand == PlacementDemand.BATCH:
                self._needed.add(model.pk)
                return Future()
            return self._waiting.setdefault(model.pk, Future())

    def asked(self) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
        """The models that somebody waits for, and those that batch work asked for since the last call."""
        with self._lock:
            needed, self._needed = self._needed, set()
            return set(self._waiting), needed

    def any_waiting(self) -> bool:
        return bool(self._waiting)

    def note_failures(self, failures: Mapping[uuid.UUID, Failure]) -> None:
        """Of all models whose last load here failed."""
        with self._lock:
            self._failures = failures

    def next_tries(self) -> list[float]:
        """Seconds until each model that failed may be tried again."""
        return [failure.next_try - time.monotonic() for failure in self._failures.values()]

    def must_wait(self, model_id: uuid.UUID) -> bool:
        failure = self._failures.get(model_id)
        return failure is not None and failure.lasts

    def settle(self, waiting: set[uuid.UUID], mine: Iterable[Placement]) -> None:
        """Answer those who wait for a model, as far as there is an answer. ``mine``: the worker's placements."""
        models = ScoringModel.objects.in_bulk(list(waiting)) if waiting else {}
        rows = {placement.model_id: placement for placement in mine}
        for model_id in waiting:
            answer = self._answer(models.get(model_id), rows.get(model_id))
            if answer is None:
                continue
            with self._lock:
                future = self._waiting.pop(model_id)
            _settle(future, answer)

    def _answer(self, model: ScoringModel | None, placement: Placement | None) -> str | ModelUnavailable | None:
        if model is None:
            return ModelUnavailable("The model was deleted.")
        if model.state != ModelState.AVAILABLE:
            return ModelUnavailable(f"Model '{model.name}' is not served now ({model.get_state_display()}).")
        if (held := self._held.get(model.pk)) and held.serves(model):
            return held.spec.name
        if self._worker.state in HELD_STATES:
            return ModelUnavailable(f"Worker {self._worker.name} takes no work now ({self._worker.state}).")
        if placement is not None and placement.state == PlacementState.FAILED:
            return ModelUnavailable(placement.cause, placement.attempt)
        if placement is not None and (refusal := placement.refusals.get(self._worker.name)):
            return ModelUnavailable(f"Model '{model.name}' finds no room: {refusal}")
        return None


def _answered(answer: str | ModelUnavailable) -> Future[str]:
    future: Future[str] = Future()
    _settle(future, answer)
    return future


def _settle(future: Future[str], answer: str | ModelUnavailable) -> None:
    if isinstance(answer, str):
        future.set_result(answer)
    else:
        future.set_exception(answer)
