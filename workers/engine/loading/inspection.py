"""What a folder says of itself before anything of it is loaded: enough to fill in a registration."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engine.errors import EngineError
from workers.engine.families.sentence_folder import read_pooling, read_similarity
from workers.engine.families.sentence_modules import read_modules, sentence_config, transformer_folder
from workers.engine.loading.detection import detect_kind
from workers.engine.loading.weights import read_json
from workers.engine.model_types import ModelKind, Scale

_SCALES = {
    ModelKind.LATE_INTERACTION: Scale.MAXSIM,
    ModelKind.SPARSE: Scale.DOT,
    ModelKind.HYBRID: Scale.FUSED,
    ModelKind.GENERATIVE: Scale.PROBABILITY,
}
_UNSET_LIMIT = 1_000_000  # tokenizers write a number beyond this where they have no limit
_MOST_HEADER = 100 << 20  # bytes


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """``pooling`` and ``scale`` are None where only a loaded model can say."""

    kind: ModelKind
    architecture: str
    pooling: str | None
    scale: Scale | None
    max_length: int | None
    has_chat_template: bool
    labels: tuple[str, ...]
    dtypes: tuple[str, ...]  # as stored
    weight_bytes: int
    gguf_files: tuple[str, ...]


def inspect_checkpoint(folder: Path) -> CheckpointFacts:
    """Reads configuration and the headers of weight files. Raises ``EngineError`` for what is no model's folder."""
    gguf_files = sorted(path.name for path in folder.glob("*.gguf"))
    body = transformer_folder(folder)
    config = read_json(body / "config.json")
    if not config and not gguf_files:
        raise EngineError("checkpoint_incomplete", f"{folder} has no config.json. Give the folder of one model.")
    kind = detect_kind(folder)
    weights = [*sorted(folder.rglob("*.safetensors")), *(folder / name for name in gguf_files)]
    return CheckpointFacts(
        kind=kind,
        architecture=next(iter(config.get("architectures") or ()), ""),
        pooling=_pooling(folder, kind),
        scale=read_similarity(_library(folder)) if kind is ModelKind.BI_ENCODER else _SCALES.get(kind),
        max_length=_max_length(body, config),
        has_chat_template=(body / "chat_template.jinja").is_file()
        or "chat_template" in read_json(body / "tokenizer_config.json"),
        labels=_labels(config) if kind in (ModelKind.CLASSIFIER, ModelKind.CROSS_ENCODER) else (),
        dtypes=tuple(sorted({name for path in weights if path.suffix == ".safetensors" for name in _dtypes(path)})),
        weight_bytes=sum(path.stat().st_size for path in weights),
        gguf_files=tuple(gguf_files),
    )


def _library(folder: Path) -> dict[str, Any]:
    return read_json(folder / "config_sentence_transformers.json")


def _pooling(folder: Path, kind: ModelKind) -> str | None:
    if kind in (ModelKind.LATE_INTERACTION, ModelKind.GENERATIVE, ModelKind.LISTWISE):
        return {ModelKind.LATE_INTERACTION: "every token"}.get(kind, "last token")
    module = next((module for module in read_modules(folder) if module.kind == "Pooling"), None)
    return " and ".join(read_pooling(module)) if module else None


def _max_length(body: Path, config: dict[str, Any]) -> int | None:
    """The smallest of the limits that the folder states, in tokens."""
    stated = [
        sentence_config(body).get("max_seq_length"),
        read_json(body / "tokenizer_config.json").get("model_max_length"),
        config.get("max_position_embeddings"),
    ]
    known = [int(limit) for limit in stated if isinstance(limit, int | float) and 0 < limit < _UNSET_LIMIT]
    return min(known, default=None)


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    named: dict[str, Any] = config.get("id2label") or {}
    return tuple(str(label) for _, label in sorted(named.items(), key=lambda entry: int(entry[0])))


def _dtypes(path: Path) -> set[str]:
    """Of a safetensors file, from its header: eight bytes of length, then JSON."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _MOST_HEADER + 1
        try:
            header = json.loads(file.read(length)) if length <= _MOST_HEADER else None
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise EngineError("checkpoint_unreadable", f"{path} is no safetensors file. Fetch it again.")
    return {str(entry["dtype"]) for name, entry in header.items() if name != "__metadata__"}
