"""BGE-M3: one forward pass gives a text's dense vector, its sparse weights and a vector per token; a score is the
weighted mean of the three comparisons, or one of them alone.

Dense is the first token's state. Sparse is a weight per token, the best of each token id, control tokens left out by
their ids. Multi-vector is every token's projected state but the first one's; its comparison is MaxSim's mean over the
query's vectors. A part of weight 0 is not computed.

The two heads come as ``sparse_linear.pt`` and ``colbert_linear.pt`` (or as safetensors of those names), read as plain
tensors whose shapes are checked.

Shapes: T tokens on the row, N sequences, E hidden, D token vector, n tokens of one sequence, k token ids."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer

from workers.engine.errors import EngineError
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.model_types import ModelSpec
from workers.engine.pooling.encoding import Part, SparseVector
from workers.engine.pooling.recipe import PlainLayout, Pooled, Recipe
from workers.engine.sequence import Sequence
from workers.engine.types import PoolingTask

_WEIGHTS = (0.4, 0.2, 0.4)  # dense, sparse, multi-vector, as the family's authors recommend
_MOST_WEIGHT = 1e6  # their sum must stay a number
_PARTS = (Part.DENSE, Part.SPARSE, Part.TOKENS)


class Linear(NamedTuple):
    weight: Tensor  # [D, E]
    bias: Tensor  # [D]

    def __call__(self, hidden: Tensor) -> Tensor:
        weight, bias = self.weight.to(hidden.dtype), self.bias.to(hidden.dtype)
        return by_rows(lambda rows: F.linear(rows, weight, bias), hidden)


def hybrid_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    folder, runner = checkpoint.folder, checkpoint.runner
    hidden_size = checkpoint.model.config.hidden_size
    sparse = read_linear(folder, "sparse_linear", hidden_size, 1)
    vectors = read_linear(folder, "colbert_linear", hidden_size)
    sparse, vectors = (Linear(*(tensor.to(runner.device) for tensor in head)) for head in (sparse, vectors))
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    control = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    return Recipe(
        layout=PlainLayout(checkpoint.tokenizer, checkpoint.max_length),
        poolers={
            Part.DENSE: pool_first,
            Part.SPARSE: SparsePooler(sparse, np.array([i for i in control if i is not None])),
            Part.TOKENS: VectorPooler(vectors, runner.dtype),
            Part.TOKEN_CLASSES: WeightPooler(sparse, checkpoint.tokenizer.special_count),
        },
        tasks={
            PoolingTask.EMBED: frozenset({Part.DENSE, Part.SPARSE}),
            PoolingTask.TOKEN_EMBED: frozenset({Part.TOKENS}),
            PoolingTask.TOKEN_CLASSIFY: frozenset({Part.TOKEN_CLASSES}),
            PoolingTask.EMBED_AND_TOKEN_CLASSIFY: frozenset({Part.DENSE, Part.TOKEN_CLASSES}),
        },
        weights=_shares(spec.weights or _WEIGHTS),
        mean_maxsim=True,
        activation=torch.relu,
    )


def pool_first(hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
    vectors = F.normalize(hidden[batch.cursor.first[chosen]].float(), dim=-1)  # [N, E]
    return Pooled([row.clone() for row in vectors], torch.isfinite(vectors).all(dim=1).tolist())


class SparsePooler:
    """The best weight above zero of each token id; ids never leave the CPU."""

    def __init__(self, head: Linear, control: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        self._head = head
        self._control = control

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        logits = self._head(hidden.float())[:, 0].relu().cpu().numpy()  # [T]
        vectors, finite = [], []
        for i in chosen:
            own = slice(batch.starts_cpu[i], batch.starts_cpu[i] + batch.lengths_cpu[i])
            ids, places = np.unique(batch.token_ids_cpu[own], return_inverse=True)
            best = np.zeros(len(ids), dtype=np.float32)
            np.maximum.at(best, places, logits[own])
            kept = ~(best <= 0) & ~np.isin(ids, self._control)  # what is no number stays, so that the text fails
            vectors.append(SparseVector(torch.from_numpy(ids[kept]), torch.from_numpy(best[kept])))
            finite.append(bool(np.isfinite(best).all()))
        return Pooled(vectors, finite)


class WeightPooler:
    """Every token's own weight before its activation, control tokens left out."""

    def __init__(self, head: Linear, special: int) -> None:
        self._head = head
        self._special = special

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        parts = self._head(hidden.float()).cpu().split(batch.lengths_cpu)  # N of [n, 1]
        kept = [range(1, batch.lengths_cpu[i] - self._special + 1) for i in chosen]
        values = [parts[i][own.start : own.stop].clone() for i, own in zip(chosen, kept, strict=True)]
        return Pooled(values, [bool(torch.isfinite(value).all()) for value in values], kept)


class VectorPooler:
    """Every token's projected state but the first one's, normalised in float32 and kept in the model's dtype."""

    def __init__(self, head: Linear, dtype: torch.dtype) -> None:
        self._head = head
        self._dtype = dtype

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        rows = F.normalize(self._head(hidden).float(), dim=-1).to(self._dtype)  # [T, D]
        finite = np.logical_and.reduceat(torch.isfinite(rows).all(dim=1).cpu().numpy(), batch.starts_cpu)  # [N]
        parts = rows.split(batch.lengths_cpu)  # N of [n, D]
        kept = [range(1, batch.lengths_cpu[i]) for i in chosen]
        return Pooled([parts[i][1:].clone() for i in chosen], finite[chosen].tolist(), kept)


def read_linear(folder: Path, name: str, inputs: int, outputs: int | None = None) -> Linear:
    """A linear layer in a file of its own; raises ``EngineError`` for anything but a weight and a bias that fit."""
    paths = [path for suffix in (".safetensors", ".pt") if (path := folder / f"{name}{suffix}").is_file()]
    if not paths:
        raise EngineError(
            "missing_weights", f"{folder} has neither {name}.pt nor {name}.safetensors. Give the folder of a BGE-M3."
        )
    path = paths[0]
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True) if path.suffix == ".pt" else load_file(path)
        weight, bias = tensors["weight"], tensors["bias"]
        fits = weight.shape == (len(bias), inputs) and bias.dim() == 1 and len(bias) == (outputs or len(bias))
    except (pickle.UnpicklingError, EOFError, RuntimeError, OSError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            "checkpoint_unreadable",
            f"{path} is not a linear layer's weight and bias, and nothing else is read: {error}",
        ) from error
    if not fits:
        raise EngineError(
            "checkpoint_unreadable",
            f"{path} holds a weight {list(weight.shape)} and a bias {list(bias.shape)}; expected are "
            f"[{outputs or 'any'}, {inputs}] and as many biases as rows.",
        )
    return Linear(weight.float(), bias.float())


def _shares(weights: tuple[float, float, float]) -> dict[Part, float]:
    """Of the parts that count; they sum to one, as the family's own score is a mean."""
    if len(weights) != 3 or not all(0 <= w <= _MOST_WEIGHT for w in weights) or not any(weights):
        raise EngineError(
            "bad_weights",
            f"The weights {weights} cannot be used. Give three numbers of 0 and more, not all 0: for the dense, the "
            "sparse and the multi-vector comparison.",
        )
    return {part: weight / sum(weights) for part, weight in zip(_PARTS, weights, strict=True) if weight}
