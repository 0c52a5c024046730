"""How much memory a model will take, known before any of its weights are read.

The model is built on torch's meta device, from its configuration: layers with shapes and without contents. So tied
weights count once, what the kind leaves out (a pooler, a head) does not count, and int8 counts for the layers that will
be int8.

Letters: T tokens of a micro-batch, E hidden size, I width of the feed-forward layer, H heads, L tokens of one text."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from workers.engine.config import EngineConfig
from workers.engine.errors import EngineError
from workers.engine.families.sentence_modules import transformer_folder
from workers.engine.loading.architectures import is_causal, known_config
from workers.engine.loading.checkpoint import INT8, device_for, resolve_dtype
from workers.engine.loading.gguf import converted_folder
from workers.engine.loading.weights import model_class
from workers.engine.model_types import MemoryEstimate, MemoryPart, ModelKind, ModelSpec

_CONTEXT_BYTES = 2**29  # what CUDA itself takes in a process: kernels, streams, cuBLAS workspaces
_STATES = 8  # [T, E] that live at once: the residual, queries, keys, values, their packed copies, attention's output
_WIDE = 3  # [T, I]: the gate, the other half and their product
_KEEPS_ENCODINGS = (ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION, ModelKind.SPARSE, ModelKind.HYBRID)
_VOCABULARY_ROWS = 2 * 2**24  # of the sparse head's logits and their bent copy, float32


def estimate_memory(spec: ModelSpec, config: EngineConfig, *, models: int = 1) -> MemoryEstimate:
    """The peak of a load, a warm-up and full micro-batches; ``models`` share the caches' budgets.

    Raises ``EngineError`` where the folder does not say what the model is."""
    device = device_for(spec, config)
    dtype = resolve_dtype(spec.dtype, device)
    converted = converted_folder(spec.folder, spec.gguf_file, config.conversion_folder) if spec.gguf_file else None
    folder = transformer_folder(converted or spec.folder)
    own = _read_config(folder, None if converted else spec.gguf_file)
    model = _skeleton(own, spec.kind)
    parts = [_weights(model, dtype, int8=spec.dtype == INT8, named=own.model_type), _beside(spec.folder, folder)]
    if spec.dtype == INT8:
        linears = sum(linear.weight.numel() for linear in _body_linears(model))
        parts.append(MemoryPart("load", 4 * linears, "The float32 weights of the layers that become int8."))
    elif spec.gguf_file and converted is None:
        whole = 4 * sum(p.numel() for p in model.parameters())
        parts.append(MemoryPart("load", whole, "A float32 copy, while the GGUF file is converted for the first time."))
    parts.append(_activations(spec.kind, own, config, dtype))
    if device.type == "cuda":
        parts.append(MemoryPart("context", _CONTEXT_BYTES, "A fixed allowance for what CUDA takes in a process."))
    parts.append(_caches(spec.kind, config, device, models, causal=is_causal(model)))
    given = tuple(part for part in parts if part.bytes)
    return MemoryEstimate(str(device), INT8 if spec.dtype == INT8 else str(dtype).removeprefix("torch."), given)


def _read_config(folder: Path, gguf_file: str | None) -> PretrainedConfig:
    named: dict[str, Any] = {"gguf_file": gguf_file} if gguf_file else {}
    try:
        own = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **named)
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(
            "checkpoint_incomplete", f"{folder} has no configuration that can be read ({error}). Give a model's folder."
        ) from error
    return known_config(own)


def _skeleton(config: PretrainedConfig, kind: ModelKind) -> PreTrainedModel:
    chosen, extra = model_class(config, kind)
    with torch.device("meta"):
        built: PreTrainedModel = chosen(config, **extra)
    built.tie_weights()
    return built


def _body_linears(model: PreTrainedModel) -> list[nn.Linear]:
    body: nn.Module = model.base_model
    return [module for module in body.modules() if type(module) is nn.Linear]


def _weights(model: PreTrainedModel, dtype: torch.dtype, *, int8: bool, named: str) -> MemoryPart:
    narrow = sum(linear.weight.numel() for linear in _body_linears(model)) if int8 else 0
    whole = sum(parameter.numel() for parameter in model.parameters())
    size = dtype.itemsize
    source = f"{whole:,} parameters of '{named}' at {size} bytes each, tied ones once"
    if int8:
        source += f", but {narrow:,} of linear layers at one"
    return MemoryPart("weights", (whole - narrow) * size + narrow, f"{source}.")


def _beside(folder: Path, body: Path) -> MemoryPart:
    """Modules that no class of transformers holds, as their files' headers say; they are kept in float32."""
    paths = [path for path in sorted(folder.rglob("*.safetensors")) if path.parent != body]
    count = sum(_stored_numbers(path) for path in paths)
    return MemoryPart("modules", 4 * count, f"{len(paths)} files beside the transformer's, in float32.")


def _stored_numbers(path: Path) -> int:
    """How many numbers a safetensors file holds, by its header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header: dict[str, Any] = json.loads(file.read(min(length, path.stat().st_size)))
    except (ValueError, struct.error) as error:
        raise EngineError(
            "checkpoint_unreadable", f"{path} has no readable header: {error}. Fetch it again."
        ) from error
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _activations(kind: ModelKind, own: PretrainedConfig, config: EngineConfig, dtype: torch.dtype) -> MemoryPart:
    """Of a full micro-batch; not of a single text that is longer than the budget."""
    text: Any = own.get_text_config()
    hidden, heads = int(text.hidden_size), int(text.num_attention_heads)
    wide = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    tokens = config.max_batch_tokens
    rows = tokens * (_STATES * hidden + _WIDE * wide) * dtype.itemsize
    squares = 2 * heads * config.max_batch_square * dtype.itemsize  # of a padded model: scores and their shares
    head = 4 * _VOCABULARY_ROWS if kind is ModelKind.SPARSE else 0
    return MemoryPart(
        "activations",
        rows + squares + head,
        f"A micro-batch of {tokens:,} tokens, {_STATES} states of {hidden} and {_WIDE} of {wide} each, and attention "
        f"scores of {heads} heads within the budget of {config.max_batch_square:,} squares.",
    )


def _caches(kind: ModelKind, config: EngineConfig, device: torch.device, models: int, *, causal: bool) -> MemoryPart:
    """What lies where the model computes; the budgets are the engine's, for all its models together."""
    budget = 0
    if kind in _KEEPS_ENCODINGS:
        on_cpu = config.document_cache_bytes + config.query_cache_bytes
        budget += config.reservation_bytes + (config.device_cache_bytes if device.type == "cuda" else on_cpu)
    if causal and kind in (ModelKind.GENERATIVE, ModelKind.CROSS_ENCODER):
        budget += config.prefix_cache_bytes
    return MemoryPart("caches", budget // models, f"Its share among {models} of budgets of {budget:,} bytes.")
