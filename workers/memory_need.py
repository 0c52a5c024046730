"""What a model needs of a device: as set, as measured, or as estimated from its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scoring.models import ScoringModel
from scoring.states import MemorySource
from workers.engine.model_types import ModelSpec
from workers.sources import SourceError, model_spec

OVERHEAD: Final = 1.05
BASE_BYTES: Final = 64 << 20
GIB: Final = 1 << 30
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    claimed_bytes: int
    source: MemorySource
    estimated_bytes: int


def memory_need(model: ScoringModel, device_class: str) -> MemoryNeed:
    """The first figure that is known. Files that are not here need nothing: their load fails in words of its own."""
    try:
        estimated = estimated_bytes(model_spec(model))
    except SourceError:
        estimated = 0
    if model.memory_bytes is not None:
        return MemoryNeed(model.memory_bytes, MemorySource.OVERRIDE, estimated)
    if measured := model.measured_bytes.get(device_class):
        return MemoryNeed(measured, MemorySource.MEASURED, estimated)
    return MemoryNeed(estimated, MemorySource.ESTIMATED, estimated)


def estimated_bytes(spec: ModelSpec) -> int:
    weights = [spec.folder / spec.gguf_file] if spec.gguf_file else list(spec.folder.rglob("*.safetensors"))
    return int(sum(file.stat().st_size for file in weights if file.is_file()) * OVERHEAD) + BASE_BYTES


def size(count: int) -> str:
    """Bytes as people read them, coarse enough not to change with every breath of the machine."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / MIB:.0f} MiB"
