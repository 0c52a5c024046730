"""What a model needs of a device: as set, as measured, or as estimated from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scoring.models import ScoringModel
from scoring.services.claims import model_estimated
from scoring.states import MemorySource
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelSpec
from workers.sources import SourceError, model_spec

GIB: Final = 1 << 30
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    bytes: int
    source: MemorySource


class MemoryNeeds:
    """For one class of device. An estimate is made once and stays with the model's row until its settings change."""

    def __init__(self, device_class: str, estimate: Callable[[ModelSpec], int]) -> None:
        self._device_class = device_class
        self._estimate = estimate

    def of(self, model: ScoringModel) -> MemoryNeed:
        """The first figure that is known: an administrator's, the last warm-up's, the estimate."""
        if model.estimated_bytes is None:
            model_estimated(model=model, estimated_bytes=self._estimated(model))
        if model.memory_bytes is not None:
            return MemoryNeed(model.memory_bytes, MemorySource.OVERRIDE)
        if measured := model.measured_bytes.get(self._device_class):
            return MemoryNeed(measured, MemorySource.MEASURED)
        return MemoryNeed(model.estimated_bytes or 0, MemorySource.ESTIMATED)

    def _estimated(self, model: ScoringModel) -> int | None:
        """None for files that are not here, or not a model's: their load says so in words of its own."""
        try:
            return self._estimate(model_spec(model))
        except (SourceError, EngineError):
            return None


def size(count: int) -> str:
    """Bytes as people read them, coarse enough not to change with every breath of the machine."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / MIB:.0f} MiB"
