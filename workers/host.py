"""Which models this process holds, and the loop that makes them what their rows say.

Everything that takes time (load, reload, unload, self-test) happens in the host's one thread, so only one load runs
at a time. Others ask with ``ensure`` and wait on a future; however many wait for a model, it is loaded once.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from django.db.models.functions import Now

from scoring.models import Placement, ScoringModel, Worker
from scoring.services.placements import placement_demand, placement_move, placement_observe
from scoring.states import ModelState, PlacementState
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelInfo, ModelSpec
from workers.faults import ModelFault, ModelUnavailable
from workers.loop import Loop
from workers.self_tests import golden_scores, model_facts, self_test_next
from workers.sources import SourceError, model_spec

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine
    from workers.engine.candidate import Candidate

logger = logging.getLogger(__name__)

BACK_OFF_SECONDS: Final = 10.0
BACK_OFF_MAX_SECONDS: Final = 300.0
POLL_SECONDS: Final = 1.0  # a wake-up reaches one worker only; the others see a change of a row this soon
NOT_TO_BE_HELD: Final = (ModelState.REJECTED, ModelState.DISABLED)
LEFT_HALF_DONE: Final = (PlacementState.LOADING, PlacementState.WARMING, PlacementState.UNLOADING)


@dataclass(frozen=True, slots=True)
class Held:
    """A model in memory, and the generation of its row that it was loaded for."""

    spec: ModelSpec
    info: ModelInfo
    generation: int

    def serves(self, model: ScoringModel) -> bool:
        return self.generation >= model.generation and self.spec.name == model.name


@dataclass(frozen=True, slots=True)
class Failure:
    count: int
    cause: str
    generation: int
    next_try: float  # time.monotonic()

    def holds_for(self, model: ScoringModel) -> bool:
        """A changed model is another try; so is the same one after the pause."""
        return self.generation == model.generation and self.next_try > time.monotonic()


Proof = Callable[["Candidate"], None]  # raises when a freshly loaded model is not fit for use


class Host:
    def __init__(self, *, engine: Engine, worker: Worker, changed: Callable[[], None]) -> None:
        """``changed`` is called after every load, good or bad."""
        self.engine = engine
        self.worker = worker
        self.loading = False
        self._changed = changed
        self._lock = Lock()
        self._held: dict[uuid.UUID, Held] = {}
        self._waiting: dict[uuid.UUID, Future[str]] = {}
        self._failures: dict[uuid.UUID, Failure] = {}
        self._used: set[uuid.UUID] = set()
        self._loop = Loop("host", self._step, seconds=POLL_SECONDS)
        self.start, self.stop, self.wake = self._loop.start, self._loop.stop, self._loop.wake

    def ensure(self, model: ScoringModel) -> Future[str]:
        """The engine's name for ``model``, once it is loaded as its row says; ModelUnavailable if it cannot be."""
        with self._lock:
            if (held := self._held.get(model.pk)) and held.serves(model):
                self._used.add(model.pk)
                return _resolved(held.spec.name)
            failure = self._failures.get(model.pk)
            if failure and failure.holds_for(model):
                return _failed(ModelUnavailable(failure.cause, failure.count))
            future = self._waiting.setdefault(model.pk, Future())
        self.wake()
        return future

    def names(self) -> list[str]:
        return sorted(self.engine.models())

    # From here on: the host's thread only.

    def _step(self) -> None:
        with self._lock:
            waiting, used = list(self._waiting), list(self._used)
            self._used.clear()
        for model in ScoringModel.objects.filter(pk__in=waiting, state=ModelState.AVAILABLE):
            placement_demand(model=model, worker=self.worker)
        mine = Placement.objects.filter(worker=self.worker)
        if used:
            mine.filter(model__in=used).update(used_at=Now())
        placements = list(mine.select_related("model", "worker"))
        for placement in placements:
            self._follow(placement)
        for model_id in self._held.keys() - {placement.model_id for placement in placements}:
            self._release(model_id)  # the model's row is gone
        self._settle(waiting)
        if not self._loop.stopping:
            self_test_next(self)

    def _follow(self, placement: Placement) -> None:
        """Bring one model a step nearer to what is wanted of it here."""
        model, held = placement.model, self._held.get(placement.model_id)
        if placement.state in LEFT_HALF_DONE:  # the database went away in the middle of a step
            self._move(placement, PlacementState.WANTED, reason="interrupted")
        if not placement.present or model.state in NOT_TO_BE_HELD:
            self._drop(placement)
        elif model.state != ModelState.AVAILABLE:
            return  # its self-test decides
        elif held is None or placement.state != PlacementState.READY:
            if self._due(placement):
                self.bring_in(placement, prove=self._warm_up(model))
        elif placement.reload_requested > placement.reloaded:
            self.bring_in(placement, prove=self._warm_up(model))
        elif not held.serves(model):
            self._renew(placement, held)

    def _due(self, placement: Placement) -> bool:
        failure = self._failures.get(placement.model_id)
        backs_off = failure is not None and failure.holds_for(placement.model)
        return not backs_off or placement.state != PlacementState.FAILED

    def _renew(self, placement: Placement, held: Held) -> None:
        """The row changed. A toggle comes into force in place; anything else is a load."""
        model = placement.model
        try:
            spec = model_spec(model)
        except SourceError:
            spec = None
        same_weights = held.info.revision == model.revision
        if spec and same_weights and replace(held.spec, gpu_maxsim=spec.gpu_maxsim) == spec:
            info = self.engine.configure(spec.name, gpu_maxsim=spec.gpu_maxsim)
            self._hold(model, spec, info)
            placement_observe(placement=placement, **observed(model, info))
        else:
            self.bring_in(placement, prove=self._warm_up(model))

    def bring_in(self, placement: Placement, *, prove: Proof) -> str:
        """Load the model of ``placement`` and have it proved. Returns the sentence that says why it failed, or nothing.

        While weights are read again and proved, the old ones serve; if the new ones are not fit, they go on doing so.
        """
        model = placement.model
        if not self._move(placement, PlacementState.LOADING, reason="load"):
            return "Its placement was changed by another process meanwhile."

        def warm_up(candidate: Candidate) -> None:
            self._move(placement, PlacementState.WARMING, reason="loaded")
            prove(candidate)

        self.loading = True
        try:
            spec = model_spec(model)
            self._free_name(model, spec.name)
            info = self.engine.load(spec, prove=warm_up)
        except (SourceError, EngineError, ModelFault) as error:
            return self._failed(placement, str(error))
        except Exception as error:  # whatever a checkpoint makes a library raise: this model fails, the worker goes on
            logger.exception("loading %s failed", model.name)
            return self._failed(placement, f"{type(error).__name__}: {error}")
        finally:
            self.loading = False
            self._changed()
        self._hold(model, spec, info)
        self._failures.pop(model.pk, None)
        facts: dict[str, Any] = {"loaded_at": Now(), "reloaded": placement.reload_requested}
        self._move(placement, PlacementState.READY, reason="ready", **facts, **observed(model, info))
        return ""

    def _warm_up(self, model: ScoringModel) -> Proof:
        def prove(candidate: Candidate) -> None:
            if candidate.info.revision != model.revision:
                raise ModelFault(f"The files of '{model.name}' changed since the self-test; run it again.")
            check = candidate.warm_up(golden_scores(model, candidate.info))
            if check is not None and not check.passed:
                raise ModelFault(f"{check.detail} Run the self-test again.")

        return prove

    def _failed(self, placement: Placement, cause: str) -> str:
        model = placement.model
        logger.warning("model %s failed to load: %s", model.name, cause)
        held = self._held.get(model.pk)
        if held and held.serves(model) and self.engine.models().get(held.spec.name) == held.info:
            if placement.state == PlacementState.LOADING:
                self._move(placement, PlacementState.WARMING, reason="reload failed")
            again: dict[str, Any] = {"reloaded": placement.reload_requested, **observed(model, held.info)}
            self._move(placement, PlacementState.READY, reason="reload failed", **{**again, "cause": cause})
            return cause
        self._release(model.pk)
        self._unload(model.name)
        before = self._failures.get(model.pk)
        count = before.count + 1 if before and before.generation == model.generation else 1
        pause = min(BACK_OFF_SECONDS * 2 ** (count - 1), BACK_OFF_MAX_SECONDS)
        with self._lock:
            self._failures[model.pk] = Failure(count, cause, model.generation, time.monotonic() + pause)
        self._move(placement, PlacementState.FAILED, reason="load failed", cause=cause, generation=0, maxsim_backend="")
        return cause

    def _settle(self, waiting: list[uuid.UUID]) -> None:
        """Answer those who wait for a model, as far as there is an answer."""
        models = ScoringModel.objects.in_bulk(waiting)
        for model_id in waiting:
            model, held, failure = models.get(model_id), self._held.get(model_id), self._failures.get(model_id)
            if model is None:
                answer = _failed(ModelUnavailable("The model was deleted."))
            elif model.state != ModelState.AVAILABLE:
                why = f"Model '{model.name}' is not served now ({model.get_state_display()})."
                answer = _failed(ModelUnavailable(why))
            elif held and held.serves(model):
                answer = _resolved(held.spec.name)
            elif failure and failure.generation == model.generation:
                answer = _failed(ModelUnavailable(failure.cause, failure.count))
            else:
                continue
            with self._lock:
                future = self._waiting.pop(model_id)
            if error := answer.exception():
                future.set_exception(error)
            else:
                future.set_result(answer.result())

    def _drop(self, placement: Placement) -> None:
        if placement.state == PlacementState.READY:
            self._move(placement, PlacementState.UNLOADING, reason="not wanted")
        self._release(placement.model_id)
        if placement.state != PlacementState.UNLOADED:
            self._move(placement, PlacementState.UNLOADED, reason="not wanted", generation=0, maxsim_backend="")

    def _hold(self, model: ScoringModel, spec: ModelSpec, info: ModelInfo) -> None:
        with self._lock:
            self._held[model.pk] = Held(spec, info, model.generation)

    def _release(self, model_id: uuid.UUID) -> None:
        with self._lock:
            held = self._held.pop(model_id, None)
        if held:
            self._unload(held.spec.name)

    def _unload(self, name: str) -> None:
        if name in self.engine.models():
            self.engine.unload(name)

    def _free_name(self, model: ScoringModel, name: str) -> None:
        """Names may be passed on: what another model still holds under this one goes, and so does our own old name."""
        for model_id, held in list(self._held.items()):
            if (held.spec.name == name) != (model_id == model.pk):
                self._release(model_id)

    def _move(self, placement: Placement, to: PlacementState, *, reason: str, cause: str = "", **observed: Any) -> bool:
        return placement_move(placement=placement, to=to, reason=reason, cause=cause, **observed)


def observed(model: ScoringModel, info: ModelInfo) -> dict[str, Any]:
    """What a placement's row says of a model in force."""
    on_cpu = info.gpu_maxsim and info.maxsim_backend == "cpu"
    return {
        "generation": model.generation,
        "maxsim_backend": info.maxsim_backend or "",
        "cause": f"GPU MaxSim is wanted; on device {info.device} it runs on the CPU." if on_cpu else "",
        "facts": model_facts(info),
    }


def _resolved(name: str) -> Future[str]:
    future: Future[str] = Future()
    future.set_result(name)
    return future


def _failed(error: ModelUnavailable) -> Future[str]:
    future: Future[str] = Future()
    future.set_exception(error)
    return future
