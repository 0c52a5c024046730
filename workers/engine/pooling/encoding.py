"""What a text becomes: named parts, of which a model can make some and a request wants some.

Shapes: E dimensions, n tokens that are kept, k different token ids, K labels."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Part(StrEnum):
    """The fields of an ``Encoding`` by name."""

    DENSE = "dense"
    TOKENS = "tokens"
    SPARSE = "sparse"
    CLASSES = "classes"
    TOKEN_CLASSES = "token_classes"


class SparseVector(NamedTuple):
    token_ids: Tensor  # [k], ascending
    weights: Tensor  # [k] float32


@dataclass(frozen=True, slots=True)
class Encoding:
    """Parts that nobody asked for are None. Each tensor owns its memory."""

    dense: Tensor | None = None  # [E]
    tokens: Tensor | None = None  # [n, E]
    token_scales: Tensor | None = None  # [n], of token vectors compressed to integers; see ``compression``
    sparse: SparseVector | None = None
    classes: Tensor | None = None  # [K] logits
    token_classes: Tensor | None = None  # [n, K] logits
    kept_token_ids: npt.NDArray[np.int32] | None = None  # [n], beside ``tokens`` and ``token_classes``

    @property
    def bytes(self) -> int:
        kept = 0 if self.kept_token_ids is None else self.kept_token_ids.nbytes
        return kept + sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def with_part(self, part: Part, value: Tensor | SparseVector) -> Encoding:
        added: dict[str, Any] = {part.value: value}
        return replace(self, **added)

    def to(self, device: torch.device) -> Encoding:
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, SparseVector):
                moved[field.name] = SparseVector(*(tensor.to(device) for tensor in value))
            elif isinstance(value, Tensor):
                moved[field.name] = value.to(device)
        return replace(self, **moved)

    def _tensors(self) -> list[Tensor]:
        found: list[Tensor] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, SparseVector):
                found += value
            elif isinstance(value, Tensor):
                found.append(value)
        return found
