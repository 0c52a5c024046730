"""A body that exists only as ``pytorch_model.bin``, converted once: read as plain tensors and nothing else, kept as
safetensors. For BGE-M3, which was published so; no other kind reads such files."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.loading.gguf import publish

NAME = "pytorch_model.bin"
_ALONG = ("*.json", "*.txt", "*.model", "*.pt", "*_linear.safetensors")


def as_safetensors_folder(folder: Path, revision: str, conversions: Path | None) -> Path:
    """The folder itself where it needs no conversion, else the one that holds this revision as safetensors."""
    if any(folder.glob("model*.safetensors")) or not (folder / NAME).is_file():
        return folder
    if conversions is None:
        raise EngineError(
            "no_conversion_folder",
            f"{folder / NAME} is converted once and kept, but the engine has no conversion folder. Configure one.",
        )
    target = conversions / revision
    if target.is_dir():
        return target
    conversions.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=conversions))
    try:
        save_file(_read(folder / NAME), unfinished / "model.safetensors", {"format": "pt"})
        for pattern in _ALONG:
            for path in folder.glob(pattern):
                shutil.copy(path, unfinished)
        publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _read(path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    except (pickle.UnpicklingError, EOFError, RuntimeError, AttributeError) as error:
        raise EngineError(
            "checkpoint_unreadable", f"{path} is not a plain table of tensors, and nothing else is read from a pickle."
        ) from error
