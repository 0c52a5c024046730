"""Bi-encoders as sentence-transformers saves them: how a text's hidden states become its one vector.

Shapes: T tokens on the row, N sequences, E hidden."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from workers.engine.encoding import Part
from workers.engine.errors import EngineError
from workers.engine.loading import Checkpoint
from workers.engine.model_types import ModelSpec
from workers.engine.packed_batch import PackedBatch
from workers.engine.recipe import PlainLayout, Pooled, Recipe
from workers.engine.sequence import Sequence
from workers.engine.types import PoolingTask
from workers.engine.weights import read_json


def sentence_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    return Recipe(
        layout=PlainLayout(checkpoint.tokenizer, checkpoint.max_length),
        poolers={Part.DENSE: SentencePooler(read_pooling(checkpoint.folder))},
        tasks={PoolingTask.EMBED: frozenset({Part.DENSE})},
        weights={Part.DENSE: 1.0},
    )


class SentencePooler:
    """The first token's state, or the mean over all tokens, in float32."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        cursor = batch.cursor
        if self._mode == "cls":
            vectors = hidden[cursor.first].float()  # [N, E]
        else:
            vectors = torch.segment_reduce(hidden.float(), "mean", lengths=cursor.last - cursor.first + 1, axis=0)
        vectors = vectors[chosen]
        return Pooled([row.clone() for row in vectors], torch.isfinite(vectors).all(dim=1).tolist())


def read_pooling(folder: Path) -> str:
    """``cls`` or ``mean`` from ``1_Pooling/config.json``; mean where the folder says nothing."""
    recipe = read_json(folder / "1_Pooling" / "config.json")
    modes = (
        [recipe["pooling_mode"]]
        if "pooling_mode" in recipe
        else [k for k, on in recipe.items() if k.startswith("pooling_mode_") and on]
    )
    names = [mode.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for mode in modes] or [
        "mean"
    ]
    if names not in (["cls"], ["mean"]):
        raise EngineError("unsupported_pooling", f"{folder} pools by {names}; supported are cls and mean.")
    return names[0]
