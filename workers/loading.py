"""One load, from the claimed memory to a placement that is ready, or to the sentence that says why it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db.models.functions import Now

from scoring.models import Placement, ScoringModel, Worker
from scoring.services.claims import model_measured, placement_fail, placement_move
from scoring.services.placements import NO_FAILURE
from scoring.states import SERVING, PlacementState
from workers.canary import Canary
from workers.device_memory import DeviceMemory
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelInfo
from workers.faults import ModelFault
from workers.held_models import HeldModel, HeldModels
from workers.memory_need import MemoryNeeds
from workers.remote.connection import RemoteUnavailable
from workers.self_tests import golden_scores, model_facts
from workers.sources import SourceError, model_spec

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine
    from workers.engine.candidate import Candidate

logger = logging.getLogger(__name__)

Proof = Callable[["Candidate"], None]  # raises when a freshly loaded model is not fit for use


class Loader:
    """The host's thread only. ``changed`` is called after every load, good or bad."""

    def __init__(
        self,
        *,
        engine: Engine,
        worker: Worker,
        memory: DeviceMemory,
        needs: MemoryNeeds,
        held: HeldModels,
        canary: Canary,
        changed: Callable[[], None],
    ) -> None:
        self.loading = False
        self._engine = engine
        self._worker = worker
        self._memory = memory
        self._needs = needs
        self._held = held
        self._canary = canary
        self._changed = changed

    def bring_in(self, placement: Placement, *, prove: Proof) -> str:
        """Load the model of a claimed ``placement``, or read again that of a serving one, and have it proved. Returns
        the sentence that says why it failed, or nothing.

        While weights are read again and proved, the old ones serve; if the new ones are not fit, they go on doing so.
        """
        model = placement.model
        first = PlacementState.UPDATING if placement.state in SERVING else PlacementState.LOADING
        if not self._move(placement, first, reason="load"):
            return "Its placement was changed by another process meanwhile."

        def warm_up(candidate: Candidate) -> None:
            if placement.state == PlacementState.LOADING:
                self._move(placement, PlacementState.WARMING, reason="loaded")
            prove(candidate)

        self.loading = True
        try:
            spec = model_spec(model)
            self._held.free_name(model, spec.name)
            info = self._engine.load(spec, prove=warm_up)
        except (SourceError, EngineError, ModelFault) as error:
            return self._failed(placement, getattr(error, "code", "load_failed"), str(error))
        except Exception as error:  # whatever a checkpoint makes a library raise: this model fails, the worker goes on
            logger.exception("loading %s failed", model.name)
            return self._failed(placement, "load_failed", f"{type(error).__name__}: {error}")
        finally:
            self.loading = False
            self._changed()
        held = self._held.put(model, spec, info)
        self._canary.proved(model.pk)
        facts: dict[str, Any] = {
            **NO_FAILURE,
            "loaded_at": Now(),
            "reloaded": placement.reload_requested,
            **self._measured(placement, info.measured_bytes),
            **observed(held),
        }
        self._move(placement, PlacementState.READY, reason="ready", **facts)
        return ""

    def warm_up(self, model: ScoringModel) -> Proof:
        """The proof of a model that was tested before: the same files, the same scores."""

        def prove(candidate: Candidate) -> None:
            if candidate.info.revision != model.revision:
                raise ModelFault(f"The files of '{model.name}' changed since the self-test; run it again.")
            try:
                check = candidate.warm_up(golden_scores(model, candidate.info))
            except RemoteUnavailable:
                return  # it was tested before; its work waits until the endpoint is back
            if check is not None and not check.passed:
                raise ModelFault(f"{check.detail} Run the self-test again.")

        return prove

    def _measured(self, placement: Placement, measured_bytes: int) -> dict[str, Any]:
        """What the model took is what it claims from now on, here and at the next load on this class of device."""
        model = placement.model
        model_measured(model=model, device_class=self._memory.device_class, measured_bytes=measured_bytes)
        need = self._needs.of(model)
        return {
            "estimated_bytes": model.estimated_bytes,
            "measured_bytes": measured_bytes,
            "claimed_bytes": need.bytes,
            "claim_source": need.source,
        }

    def _failed(self, placement: Placement, code: str, cause: str) -> str:
        model = placement.model
        logger.warning("model %s failed to load: %s", model.name, cause)
        held = self._held.get(model.pk)
        if (
            held
            and placement.state == PlacementState.UPDATING
            and self._engine.models().get(held.spec.name) == held.info
        ):
            again: dict[str, Any] = {"reloaded": placement.reload_requested, **observed(held), "cause": cause}
            self._move(placement, PlacementState.READY, reason="reload failed", **again)
            return cause
        self._held.release(model.pk)
        self._held.unload(model.name)
        placement_fail(placement=placement, code=code, cause=cause)
        return cause

    def _move(self, placement: Placement, to: PlacementState, *, reason: str, **observed: Any) -> bool:
        return placement_move(placement=placement, to=to, reason=reason, **observed)


def observed(held: HeldModel) -> dict[str, Any]:
    """What a placement's row says of a model in force."""
    info: ModelInfo = held.info
    on_cpu = info.gpu_maxsim and info.maxsim_backend == "cpu"
    return {
        "generation": held.generation,
        "maxsim_backend": info.maxsim_backend or "",
        "cause": f"GPU MaxSim is wanted; on device {info.device} it runs on the CPU." if on_cpu else "",
        "facts": model_facts(info),
    }
