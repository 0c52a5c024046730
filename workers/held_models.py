"""The models in this process's memory, by the id of their row. Read by any thread, changed by the host's alone."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from scoring.models import ScoringModel
from workers.engine.model_types import ModelInfo, ModelSpec

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model in memory, and the generation of its row that it was loaded for."""

    spec: ModelSpec
    info: ModelInfo
    generation: int

    def serves(self, model: ScoringModel) -> bool:
        return self.generation >= model.generation and self.spec.name == model.name


class HeldModels:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._held: dict[uuid.UUID, HeldModel] = {}

    def get(self, model_id: uuid.UUID) -> HeldModel | None:
        with self._lock:
            return self._held.get(model_id)

    def ids(self) -> set[uuid.UUID]:
        with self._lock:
            return set(self._held)

    def put(self, model: ScoringModel, spec: ModelSpec, info: ModelInfo) -> HeldModel:
        held = HeldModel(spec, info, model.generation)
        with self._lock:
            self._held[model.pk] = held
        return held

    def release(self, model_id: uuid.UUID) -> None:
        """Give its memory back, if it is held."""
        with self._lock:
            held = self._held.pop(model_id, None)
        if held:
            self.unload(held.spec.name)

    def unload(self, name: str) -> None:
        """What the engine has under ``name``, if anything."""
        if name in self._engine.models():
            self._engine.unload(name)

    def free_name(self, model: ScoringModel, name: str) -> None:
        """Names may be passed on: what another model still holds under this one goes, and so does our own old name."""
        for model_id in self.ids():
            held = self.get(model_id)
            if held and (held.spec.name == name) != (model_id == model.pk):
                self.release(model_id)
