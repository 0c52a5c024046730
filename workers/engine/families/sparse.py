"""Sparse encoders (SPLADE): a text becomes weights of vocabulary entries, by the checkpoint's masked-language head.

A vector keeps what is above zero as (token ids, weights): some hundred entries where the vocabulary has tens of
thousands. So it is kept in the caches, so it is answered, and so two of them are compared.

Read are folders of sentence-transformers (``modules.json``: a transformer, then SpladePooling) and plain
``…ForMaskedLM`` checkpoints, which pool by the maximum. Control tokens take part, as they do in that library.

Shapes: T tokens on the row, E hidden, V vocabulary, n sequences, k entries above zero."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.forward.own_head import PositionwiseHead
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.loading.weights import read_json
from workers.engine.model_types import ModelSpec
from workers.engine.pooling.encoding import Part, SparseVector
from workers.engine.pooling.recipe import PlainLayout, Pooled, Recipe
from workers.engine.sequence import Sequence
from workers.engine.types import PoolingTask

_LOGITS = 2**24  # numbers that the head may give at a time: [T, V] of a long row never exists
_TRANSFORMERS = ("Transformer", "MLMTransformer")


def sparse_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    strategy, logarithms = read_splade_pooling(checkpoint.folder)
    _check_use(checkpoint.folder)
    pooler = SpladePooler(PositionwiseHead(checkpoint.model), checkpoint.model.config.vocab_size, strategy, logarithms)
    return Recipe(
        layout=PlainLayout(checkpoint.tokenizer, checkpoint.max_length),
        poolers={Part.SPARSE: pooler},
        tasks={PoolingTask.EMBED: frozenset({Part.SPARSE})},
        weights={Part.SPARSE: 1.0},
    )


class SpladePooler:
    """``strategy`` over a text's tokens of the logits above zero, bent by ``log(1 + x)`` as often as asked."""

    def __init__(
        self, head: Callable[[Tensor], Tensor], vocabulary: int, strategy: str, logarithms: int, budget: int = _LOGITS
    ) -> None:
        self._head = head
        self._strategy = strategy
        self._logarithms = logarithms
        self._most = max(1, budget // vocabulary)  # tokens at a time

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        vectors, finite = [], []
        for members in _groups(batch, chosen, self._most):
            for row in self._weights(hidden, batch, members).cpu():
                places = torch.nonzero(row)[:, 0]  # what is no number stays, so that the text fails
                vectors.append(SparseVector(places, row[places]))
                finite.append(bool(torch.isfinite(row).all()))
        return Pooled(vectors, finite)

    def _weights(self, hidden: Tensor, batch: PackedBatch, members: list[int]) -> Tensor:
        """Float32 ``[n, V]`` for neighbours on the row, whose logits fit, or one sequence, in parts if it must."""
        lengths = [batch.lengths_cpu[i] for i in members]
        rows = torch.cat(
            [hidden[batch.starts_cpu[i] : batch.starts_cpu[i] + n] for i, n in zip(members, lengths, strict=True)]
        )
        if len(rows) <= self._most:
            return torch.stack([self._pool(part) for part in self._head(rows).split(lengths)])
        parts = torch.stack([self._pool(self._head(part)) for part in rows.split(self._most)])
        return (parts.amax(dim=0) if self._strategy == "max" else parts.sum(dim=0))[None]

    def _pool(self, logits: Tensor) -> Tensor:
        """``[T, V]`` to float32 ``[V]``. Bending keeps the order, so behind the maximum it gives the same for less."""
        if self._strategy == "max":
            return self._bend(logits.amax(dim=0))
        return self._bend(logits).sum(dim=0)

    def _bend(self, logits: Tensor) -> Tensor:
        weights = logits.float().relu()
        for _ in range(self._logarithms):
            weights = weights.log1p()
        return weights


def _groups(batch: PackedBatch, chosen: list[int], most: int) -> Iterator[list[int]]:
    """Sequences whose tokens together are at most so many, in their order; a longer one is alone."""
    members: list[int] = []
    tokens = 0
    for i in chosen:
        if members and tokens + batch.lengths_cpu[i] > most:
            yield members
            members, tokens = [], 0
        members.append(i)
        tokens += batch.lengths_cpu[i]
    yield members


def read_splade_pooling(folder: Path) -> tuple[str, int]:
    """The strategy, ``max`` or ``sum``, and how many logarithms follow one another."""
    path = folder / "modules.json"
    if not path.is_file():
        return "max", 1
    modules = json.loads(path.read_text())
    names = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if len(names) != 2 or names[0] not in _TRANSFORMERS or names[1] != "SpladePooling":
        raise EngineError(
            "unsupported_module",
            f"{folder} is a chain of {', '.join(names)}; a sparse encoder is read as a Transformer with a "
            "SpladePooling behind it. Give such a checkpoint.",
        )
    config = read_json(folder / modules[1]["path"] / "config.json")
    strategy, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    logarithms = {"relu": 1, "log1p_relu": 2}
    if strategy not in ("max", "sum") or activation not in logarithms:
        raise EngineError(
            "unsupported_pooling",
            f"{folder} pools by {strategy} of {activation}; supported are max and sum of {' and '.join(logarithms)}.",
        )
    return strategy, logarithms[activation]


def _check_use(folder: Path) -> None:
    config = read_json(folder / "config_sentence_transformers.json")
    prompts, similarity = config.get("prompts") or {}, config.get("similarity_fn_name") or "dot"
    if any(prompts.values()):
        raise EngineError(
            "unsupported_prompt",
            f"{folder} puts prompts before texts ({', '.join(sorted(prompts))}), which sparse encoders are not given "
            "here. Take them out of config_sentence_transformers.json if the weights do not need them.",
        )
    if similarity != "dot":
        raise EngineError(
            "unsupported_similarity", f"{folder} compares by {similarity}; sparse vectors are compared by dot product."
        )
