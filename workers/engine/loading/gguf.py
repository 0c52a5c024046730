"""GGUF files, dequantised once: transformers needs seconds to minutes for that, the safetensors copy loads at once ever
after."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from workers.engine.errors import EngineError


def as_safetensors(folder: Path, gguf_file: str, conversions: Path | None) -> Path:
    """The folder that holds this content as float32 safetensors with its tokenizer, made now if there is none."""
    target = _target(folder / gguf_file, conversions)
    if target.is_dir():
        return target
    conversions = target.parent
    conversions.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=conversions))
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=gguf_file, dtype=torch.float32, local_files_only=True
        )
        _save_plain(model, unfinished)
        AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file, local_files_only=True).save_pretrained(unfinished)
        publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def converted_folder(folder: Path, gguf_file: str, conversions: Path | None) -> Path | None:
    """The same where it was made before, else None."""
    target = _target(folder / gguf_file, conversions)
    return target if target.is_dir() else None


def _target(source: Path, conversions: Path | None) -> Path:
    if not source.is_file():
        raise EngineError(
            "checkpoint_not_found", f"{source} does not exist. Name a GGUF file inside the model's folder."
        )
    if conversions is None:
        raise EngineError(
            "no_conversion_folder",
            "A GGUF file is converted once and kept, but the engine has no conversion folder. Configure one.",
        )
    with source.open("rb") as file:
        return conversions / hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _save_plain(model: PreTrainedModel, folder: Path) -> None:
    """As if the model had never been quantised; transformers refuses to save what came from GGUF."""
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    by_memory = {tensor.data_ptr(): name for name, tensor in reversed(model.state_dict().items())}  # tied weights once
    save_file(
        {name: model.get_parameter(name).contiguous() for name in by_memory.values()},
        folder / "model.safetensors",
        {"format": "pt"},
    )


def publish(unfinished: Path, target: Path) -> None:
    """Atomic, so that nobody ever loads half a conversion; where another process was first, its copy is the same."""
    try:
        unfinished.rename(target)
    except OSError:
        if not target.is_dir():
            raise
