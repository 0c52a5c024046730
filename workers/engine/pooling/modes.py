"""Many texts' hidden states to one vector each, in the ways that sentence-transformers names.

Shapes: T tokens on the row, N sequences, E hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.engine.forward.packed_batch import PackedBatch


@dataclass(frozen=True, slots=True)
class Segments:
    """A row of sequences, of which each may leave out its first tokens."""

    hidden: Tensor  # [T, E] float32
    first: Tensor  # [N], the first token that counts
    last: Tensor  # [N]
    lengths: Tensor  # [N], with the tokens left out
    places: Tensor  # [T], within the sequence
    kept: Tensor | None  # [T, 1]; None: all

    @property
    def counts(self) -> Tensor:
        return (self.last - self.first + 1)[:, None]  # [N, 1]

    def sum(self, rows: Tensor) -> Tensor:
        rows = rows if self.kept is None else torch.where(self.kept, rows, 0.0)
        return torch.segment_reduce(rows, "sum", lengths=self.lengths, axis=0)  # [N, E]


def cut_segments(hidden: Tensor, batch: PackedBatch, skipped: list[int]) -> Segments:
    """``skipped`` (N) says how many first tokens count for nothing; the last one always counts."""
    first, last = batch.cursor.first, batch.cursor.last
    lengths = last - first + 1
    starts = torch.repeat_interleave(first, lengths, output_size=len(hidden))  # [T]
    places = torch.arange(len(hidden), device=hidden.device) - starts
    kept = None
    if any(skipped):
        within = [min(skip, length - 1) for skip, length in zip(skipped, batch.lengths_cpu, strict=True)]
        first = first + torch.tensor(within, device=hidden.device)
        kept = (places + starts >= torch.repeat_interleave(first, lengths, output_size=len(hidden)))[:, None]
    return Segments(hidden.float(), first, last, lengths, places, kept)


def _maximum(segments: Segments) -> Tensor:
    rows = segments.hidden if segments.kept is None else torch.where(segments.kept, segments.hidden, -torch.inf)
    return torch.segment_reduce(rows, "max", lengths=segments.lengths, axis=0)


def _weighted_mean(segments: Segments) -> Tensor:
    """By the place, counted from 1 at the sequence's own first token even where that is left out."""
    weights = (segments.places + 1).float()[:, None]  # [T, 1]
    return segments.sum(segments.hidden * weights) / segments.sum(weights)


POOLING_MODES: dict[str, Callable[[Segments], Tensor]] = {
    "cls": lambda segments: segments.hidden[segments.first],
    "max": _maximum,
    "mean": lambda segments: segments.sum(segments.hidden) / segments.counts,
    "mean_sqrt_len_tokens": lambda segments: segments.sum(segments.hidden) / segments.counts.sqrt(),
    "weightedmean": _weighted_mean,
    "lasttoken": lambda segments: segments.hidden[segments.last],
}
