"""The modules that sentence-transformers and PyLate chain behind a transformer, as ``modules.json`` lists them.

Shapes: n rows (texts or tokens), E dimensions before a step, F behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workers.engine.errors import EngineError
from workers.engine.loading.weights import read_json, read_tensors

Step = Callable[[Tensor], Tensor]  # [n, E] to [n, F], in the dtype given

_LIBRARIES = ("sentence_transformers.", "pylate.")
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Identity": nn.Identity,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
    "Mish": nn.Mish,
}


@dataclass(frozen=True, slots=True)
class Module:
    kind: str  # the class's name, such as "Pooling"; with its path where it belongs to no known library
    folder: Path

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.folder / "config.json")


def read_modules(folder: Path) -> list[Module]:
    """In their order; none where the folder is a plain checkpoint of transformers."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    modules = []
    for entry in json.loads(path.read_text()):
        name = str(entry["type"])
        kind = name.rsplit(".", 1)[-1] if name.startswith(_LIBRARIES) else name
        modules.append(Module(kind, folder / str(entry["path"])))
    if not modules or modules[0].kind != "Transformer":
        first = modules[0].kind if modules else "nothing"
        raise EngineError(
            "unsupported_module",
            f"{path} begins with {first}; supported are chains that begin with a Transformer of sentence-transformers.",
        )
    return modules


def transformer_folder(folder: Path) -> Path:
    """Where configuration, tokenizer and weights lie; older folders keep them in a folder of their own."""
    if (folder / "config.json").is_file() or not (folder / "modules.json").is_file():
        return folder
    return read_modules(folder)[0].folder


def sentence_config(folder: Path) -> dict[str, Any]:
    """``sentence_bert_config.json``, which older folders name after their architecture."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    return read_json(paths[0]) if paths else {}


def check_transformer(folder: Path) -> None:
    """Refuse a Transformer that gives something else than its last hidden states, or reads something else than text."""
    config = sentence_config(transformer_folder(folder))
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    modalities = config.get("modality_config") or {"text": text}
    plain = config.get("transformer_task", "feature-extraction") == "feature-extraction"
    if not plain or "message" in modalities or modalities.get("text") != text or config.get("processing_kwargs"):
        raise EngineError(
            "unsupported_module",
            f"The Transformer of {folder} is set up for more than text to last hidden states (task, chat messages or "
            "processing arguments in its configuration), which is not supported here.",
        )


def read_step(module: Module, device: torch.device, dtype: torch.dtype) -> Step:
    """A module behind the pooling, or over every token's state, as a function. Weights are held in ``dtype``."""
    if module.kind not in _STEPS:
        raise EngineError(
            "unsupported_module",
            f"{module.folder} is a {module.kind}, which is not supported here. Supported are {', '.join(_STEPS)}.",
        )
    return _STEPS[module.kind](module, device, dtype)


class Dense:
    """A linear layer with its activation, and the way around it where the checkpoint has one."""

    def __init__(self, module: Module, device: torch.device, dtype: torch.dtype) -> None:
        config = module.config
        width, residual = config["in_features"], config.get("use_residual", False)
        self.in_features, self.out_features = int(width), int(config["out_features"])
        names = {"linear.weight"} | ({"linear.bias"} if config.get("bias", True) else set())
        self._adds_input = residual and self.in_features == self.out_features
        if residual and not self._adds_input:
            names.add("residual.weight")
        weights = _weights(module, names, device, dtype)
        self._weight, self._bias = weights["linear.weight"], weights.get("linear.bias")
        self._residual = weights.get("residual.weight")
        wanted = [self.out_features, self.in_features]
        if list(self._weight.shape) != wanted:
            raise EngineError(
                "missing_weights",
                f"{module.folder} says {wanted} and stores a linear.weight of {list(self._weight.shape)}.",
            )
        self._activation = _activation(module)

    def __call__(self, rows: Tensor) -> Tensor:
        bias = None if self._bias is None else self._bias.to(rows.dtype)
        out = self._activation(F.linear(rows, self._weight.to(rows.dtype), bias))  # [n, F]
        if self._adds_input:
            return out + rows
        return out if self._residual is None else out + F.linear(rows, self._residual.to(rows.dtype))


def _layer_norm(module: Module, device: torch.device, dtype: torch.dtype) -> Step:
    weights = _weights(module, {"norm.weight", "norm.bias"}, device, dtype)
    weight, bias = weights["norm.weight"], weights["norm.bias"]
    return lambda rows: F.layer_norm(rows, weight.shape, weight.to(rows.dtype), bias.to(rows.dtype))


_STEPS: dict[str, Callable[[Module, torch.device, torch.dtype], Step]] = {
    "Dense": Dense,
    "LayerNorm": _layer_norm,
    "Normalize": lambda *_: lambda rows: F.normalize(rows, dim=-1),
    "Dropout": lambda *_: lambda rows: rows,
}


def _activation(module: Module) -> nn.Module:
    """Tanh where the folder is silent, as in the library."""
    name = str(module.config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    short = name.rsplit(".", 1)[-1]
    if not name.startswith("torch.nn.") or short not in _ACTIVATIONS:
        raise EngineError(
            "unsupported_module",
            f"{module.folder} has the activation '{name}'; supported are {', '.join(_ACTIVATIONS)} of torch.nn.",
        )
    return _ACTIVATIONS[short]()


def _weights(module: Module, names: set[str], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    found = read_tensors(module.folder, names)
    missing = sorted(names - found.keys())
    if missing:
        raise EngineError(
            "missing_weights",
            f"{module.folder} lacks {', '.join(missing)} in *.safetensors. Other weight formats are not read; convert "
            "it or give a checkpoint that has them.",
        )
    return {name: tensor.to(device=device, dtype=dtype) for name, tensor in found.items()}
