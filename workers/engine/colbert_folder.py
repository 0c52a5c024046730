"""Late-interaction checkpoints: every token's own normalised vector.

Shapes: T tokens on the row, N sequences, E hidden, n tokens of one sequence."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.encoding import Part
from workers.engine.loading import Checkpoint
from workers.engine.model_types import ModelSpec
from workers.engine.packed_batch import PackedBatch
from workers.engine.recipe import PlainLayout, Pooled, Recipe
from workers.engine.sequence import Sequence
from workers.engine.types import PoolingTask


def colbert_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    return Recipe(
        layout=PlainLayout(checkpoint.tokenizer, checkpoint.max_length),
        poolers={Part.TOKENS: TokenPooler(checkpoint.runner.dtype)},
        tasks={PoolingTask.TOKEN_EMBED: frozenset({Part.TOKENS})},
        weights={Part.TOKENS: 1.0},
    )


class TokenPooler:
    """All tokens, normalised in float32 and kept in the model's dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        rows = F.normalize(hidden.float(), dim=-1).to(self._dtype)  # [T, E]
        finite = np.logical_and.reduceat(torch.isfinite(rows).all(dim=1).cpu().numpy(), batch.starts_cpu)  # [N]
        parts = rows.split(batch.lengths_cpu)  # N of [n, E]
        return Pooled([parts[i].clone() for i in chosen], finite[chosen].tolist())
