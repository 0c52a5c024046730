"""Late-interaction checkpoints: every token's own normalised vector.

Shapes: T tokens on the row, N sequences, E hidden, n tokens of one sequence."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.families.late_settings import LateSettings, is_stanford, read_late_settings
from workers.engine.families.sentence_modules import Step, check_transformer, read_modules, read_step
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows
from workers.engine.loading.architectures import position_limit
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.loading.weights import read_tensors
from workers.engine.model_types import ModelSpec
from workers.engine.pooling.encoding import Part
from workers.engine.pooling.recipe import PlainLayout, Pooled, Recipe, TextLayout
from workers.engine.role import Role
from workers.engine.sequence import Sequence
from workers.engine.texts.marked_layout import MarkedLayout
from workers.engine.types import PoolingTask

Places = range | list[int]


def colbert_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    settings = read_late_settings(checkpoint.folder)
    layout: TextLayout = PlainLayout(checkpoint.tokenizer, checkpoint.max_length)
    skipped: frozenset[int] = frozenset()
    steps: list[Step] = []
    if settings is not None:
        # A word of which the vocabulary has no piece is no token that could be skipped.
        found = {checkpoint.tokenizer.id_of(word) for word in settings.skiplist}
        skipped = frozenset(token_id for token_id in found if token_id is not None)
        layout = MarkedLayout(checkpoint.tokenizer, settings, _lengths(spec, checkpoint, settings), skipped)
        steps = _projection(checkpoint)
    return Recipe(
        layout=layout,
        poolers={Part.TOKENS: TokenPooler(checkpoint.runner.dtype, steps, skipped)},
        tasks={PoolingTask.TOKEN_EMBED: frozenset({Part.TOKENS})},
        weights={Part.TOKENS: 1.0},
        mean_maxsim=settings is not None and settings.mean,
    )


class TokenPooler:
    """All tokens that are compared, projected, normalised in float32 and kept in the model's dtype."""

    def __init__(self, dtype: torch.dtype, steps: Collection[Step] = (), skipped: Collection[int] = ()) -> None:
        self._dtype = dtype
        self._steps = steps
        self._skipped = skipped

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        for step in self._steps:
            hidden = by_rows(step, hidden)  # [T, E]
        rows = F.normalize(hidden.float(), dim=-1).to(self._dtype)
        finite = np.logical_and.reduceat(torch.isfinite(rows).all(dim=1).cpu().numpy(), batch.starts_cpu)  # [N]
        parts = rows.split(batch.lengths_cpu)  # N of [n, E]
        kept = [self._kept(sequences[i]) for i in chosen]
        values = [
            parts[i].clone() if len(places) == len(parts[i]) else parts[i][torch.tensor(places, device=rows.device)]
            for i, places in zip(chosen, kept, strict=True)
        ]
        return Pooled(values, finite[chosen].tolist(), kept)

    def _kept(self, sequence: Sequence) -> Places:
        if not self._skipped or sequence.role is not Role.DOCUMENT:
            return range(len(sequence.token_ids))
        return [place for place, token_id in enumerate(sequence.token_ids) if token_id not in self._skipped]


def _lengths(spec: ModelSpec, checkpoint: Checkpoint, settings: LateSettings) -> dict[Role, int]:
    """A registration's limit is the documents'; queries keep their own unless it is larger."""
    own = settings.query_length or checkpoint.max_length
    limits = (own, spec.max_length, position_limit(checkpoint.model.config))
    return {Role.QUERY: min(limit for limit in limits if limit), Role.DOCUMENT: checkpoint.max_length}


def _projection(checkpoint: Checkpoint) -> list[Step]:
    folder, device, dtype = checkpoint.folder, checkpoint.runner.device, checkpoint.runner.dtype
    if not is_stanford(folder):
        check_transformer(folder)
        modules = read_modules(folder)[1:]
        if not any(module.kind == "Dense" for module in modules):
            raise EngineError(
                "missing_weights",
                f"{folder} is a late-interaction checkpoint without a Dense module in its modules.json, so its "
                "projection would be random. Give the folder as PyLate saves it.",
            )
        # What a mask leaves out is in the settings.
        return [read_step(module, device, dtype) for module in modules if module.kind != "MultiVectorMask"]
    weight = read_tensors(folder, {"linear.weight"}).get("linear.weight")
    if weight is None:
        raise EngineError(
            "missing_weights",
            f"{folder} is a ColBERT checkpoint without linear.weight, so its projection would be random. Give a "
            "checkpoint that was saved with it.",
        )
    weight = weight.to(device=device, dtype=dtype)
    return [lambda rows: F.linear(rows, weight.to(rows.dtype))]
