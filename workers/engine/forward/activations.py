"""What turns a raw score into the one shown. A checkpoint may name it; names are looked up here and never imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.loading.weights import read_json
from workers.engine.model_types import Scale

_HOME = "torch.nn.modules."
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Hardsigmoid": F.hardsigmoid,
    "Identity": lambda raw: raw,
    "LogSigmoid": F.logsigmoid,
    "ReLU": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
}
# Over exclusive labels sentence-transformers stores one of these; both stand for the share of each label, and that of
# the positive class is the sigmoid of its log-odds.
_SHARES = ("Identity", "Softmax")


@dataclass(frozen=True, slots=True)
class Activation:
    """Element by element over float32; rises with the raw score, so that the order is that of the raw scores."""

    function: Callable[[Tensor], Tensor]
    scale: Scale


def read_activation(folder: Path, *, labels: int, exclusive: bool) -> tuple[Activation, bool]:
    """The folder's own, else the sigmoid; and whether ``labels`` still exclude each other under it.

    Of several exclusive labels the raw score is a log-odds, whose sigmoid is the softmax share."""
    name = _activation_name(folder)
    short = name.rpartition(".")[2]
    if name and (not name.startswith(_HOME) or (short not in _FUNCTIONS and not (short == "Softmax" and labels > 1))):
        raise EngineError(
            "unsupported_activation",
            f"{folder} names '{name}' as its activation. Known are {', '.join(sorted(_FUNCTIONS))} of {_HOME}* without "
            "arguments, and Softmax over several labels. Change the name in its configuration.",
        )
    if labels > 1 and exclusive and (not name or short in _SHARES):
        return Activation(torch.sigmoid, Scale.PROBABILITY), True
    scale = Scale.PROBABILITY if not name or short in ("Sigmoid", "Hardsigmoid") else Scale.LOGIT
    return Activation(_FUNCTIONS[short or "Sigmoid"], scale), labels == 1


def _activation_name(folder: Path) -> str:
    """Where sentence-transformers looks, in its order; empty where nothing is said."""
    config = read_json(folder / "config.json")
    places = (
        read_json(folder / "config_sentence_transformers.json").get("activation_fn"),
        (config.get("sentence_transformers") or {}).get("activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    )
    return next((str(name) for name in places if name), "")
