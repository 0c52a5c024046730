"""Weights from a folder into the class of transformers that the kind asks for; what would be made up is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from workers.engine.errors import EngineError
from workers.engine.model_types import ModelKind

_HEADS: dict[str, Any] = {
    "ForCausalLM": AutoModelForCausalLM,
    "ForMaskedLM": AutoModelForMaskedLM,
    "ForSequenceClassification": AutoModelForSequenceClassification,
    "ForTokenClassification": AutoModelForTokenClassification,
}
# The heads that a kind can use, the one it takes where the checkpoint names none of them first.
_USABLE = {
    ModelKind.CROSS_ENCODER: ("ForSequenceClassification", "ForCausalLM"),
    ModelKind.SPARSE: ("ForMaskedLM",),
    ModelKind.CLASSIFIER: ("ForSequenceClassification", "ForTokenClassification"),
    ModelKind.GENERATIVE: ("ForCausalLM",),
}


def model_class(config: PretrainedConfig, kind: ModelKind) -> tuple[Any, dict[str, Any]]:
    """The class of transformers that the kind asks for, and what it is built with."""
    head = _head_for(kind, config)
    auto = _HEADS[head] if head else AutoModel
    if type(config) not in auto._model_mapping:
        raise EngineError(
            "unsupported_architecture",
            f"'{config.model_type}' has no {head or 'encoder'} model in transformers, so it cannot be a {kind}. "
            "Register it as another kind or give another checkpoint.",
        )
    chosen: Any = auto._model_mapping[type(config)]
    # BERT's pooler plays no part in any score but a classifier's; checkpoints saved without it are whole.
    takes_pooler = "add_pooling_layer" in inspect.signature(chosen).parameters
    return chosen, {"add_pooling_layer": False} if takes_pooler else {}


def load_weights(folder: Path, config: PretrainedConfig, kind: ModelKind, dtype: torch.dtype) -> PreTrainedModel:
    """The body, with a head where the kind has one; weights that would be newly initialised are refused by name."""
    chosen, extra = model_class(config, kind)
    model, report = chosen.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **extra,
    )
    mismatched = (
        f"{name} (stored {list(stored)}, wanted {list(wanted)})" for name, stored, wanted in report["mismatched_keys"]
    )
    missing = sorted((*report["missing_keys"], *mismatched))
    if missing:
        raise EngineError(
            "missing_weights",
            f"{folder} lacks weights that a {kind} model needs, they would be random: {', '.join(missing[:8])}"
            f"{' …' if len(missing) > 8 else ''}. Give a checkpoint trained for this kind.",
        )
    loaded: PreTrainedModel = model
    return loaded


def read_tensors(folder: Path, names: set[str]) -> dict[str, Tensor]:
    """Those of the named weights that the folder's safetensors files hold, as stored: heads outside any class."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in names & set(file.keys())}
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise EngineError("checkpoint_unreadable", f"{path} is not JSON: {error}. Fetch it again.") from error
    return content


def _head_for(kind: ModelKind, config: PretrainedConfig) -> str | None:
    usable = _USABLE.get(kind)
    if usable is None:
        return None
    own = next(iter(config.architectures or ()), "")
    return next((head for head in usable if own.endswith(head)), usable[0])
