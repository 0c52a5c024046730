"""Keys and values of tokens that ran before, so that whoever begins with the same tokens need not run them again.

While a batch runs, attention stores what its pieces want kept, layer by layer; what earlier batches kept lies behind
the row as keys and values only. Keys are kept as attention sees them, with their positions turned in.

Shapes: T tokens on the row, J key heads, D head dim, n tokens of one prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from workers.engine.caches.byte_budget import ByteBudgetCache
from workers.engine.errors import EngineError

if TYPE_CHECKING:
    from workers.engine.forward.packed_batch import PackedBatch


@dataclass(eq=False, slots=True)
class KeptPrefix:
    """``length`` tokens, which may themselves continue others."""

    length: int
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # by layer_idx: keys, values [J, n, D]

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for states in self.layers.values() for x in states)


@dataclass(frozen=True, slots=True)
class PrefixKey:
    model: str
    generation: int  # of the weights: a reload makes every older key unreachable
    salt: str  # who may share it
    digest: bytes  # of all tokens from the prompt's first on

    @property
    def owner(self) -> str:
        return self.model


def token_digest(token_ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(np.asarray(token_ids, dtype=np.int64).tobytes(), digest_size=16).digest()


class PrefixCache(ByteBudgetCache[PrefixKey, KeptPrefix]):
    """Prefixes of all models, where their models compute."""


def keep_and_extend(module: nn.Module, key: Tensor, value: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """One layer's keys and values ``[J, T, D]``: store what is wanted of them; what is kept comes behind the row."""
    if not (batch.kept or batch.keeps_cpu):
        return key, value
    layer: int | None = getattr(module, "layer_idx", None)
    if layer is None:
        raise EngineError("unsupported_attention", f"{type(module).__name__} does not say which layer it is.")
    for start, keep in batch.keeps_cpu:
        rows = slice(start, start + keep.length)
        keep.layers[layer] = (key[:, rows].clone(), value[:, rows].clone())  # [J, n, D], without the rest of the row
    if not batch.kept:
        return key, value
    behind = [kept.layers[layer] for kept in batch.kept]
    return torch.cat([key, *(k for k, _ in behind)], dim=1), torch.cat([value, *(v for _, v in behind)], dim=1)
