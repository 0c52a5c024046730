"""MaxSim on the CPU over documents that lie anywhere in memory, as a cache gives them.

To lay them all end to end in fresh memory takes longer than their MaxSim. So blocks of them are laid into one buffer,
each over the one before, whose pages are there already. (One product per document, without any copy, loses more: each
wakes the threads anew.)

Shapes: Q queries of M tokens in all, D documents, E dimensions, n tokens of one document, t of a block."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from workers.engine.caches.compression import token_vectors
from workers.engine.forward.steady_rows import filled as filled_up
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.maxsim import IMAGE_ROWS, maxsim_of_blocks

_BUFFER_BYTES = 2**25  # smaller ones cost more calls than their nearness saves


class ScatteredMaxSim:
    """Keeps its buffer from call to call, as large as the largest yet: to have its pages made by the system costs more
    than the MaxSim of a hundred documents. One call at a time."""

    def __init__(self) -> None:
        self._kept = torch.empty(0)

    def __call__(self, queries: Tensor, query_lengths: list[int], documents: list[Encoding]) -> Tensor:
        """``queries [M, E]`` packed; float32 ``[Q, D]``. What ``maxsim`` gives for the documents' token vectors,
        packed."""
        queries = queries.to("cpu", torch.float32)
        rows = max(1, _BUFFER_BYTES // (4 * IMAGE_ROWS * queries.shape[1])) * IMAGE_ROWS
        vectors = [_vectors(document) for document in documents if document.tokens is not None]
        lengths = [0 if document.tokens is None else len(document.tokens) for document in documents]
        needed = filled_up(sum(map(len, vectors)), queries.device, IMAGE_ROWS)
        buffer = self._buffer(min(rows, needed), queries.shape[1])
        return maxsim_of_blocks(queries, query_lengths, _gathered(vectors, rows, buffer), lengths)

    def _buffer(self, rows: int, dimensions: int) -> Tensor:
        if self._kept.numel() < rows * dimensions:
            self._kept = torch.empty(rows * dimensions)
        return self._kept[: rows * dimensions].view(rows, dimensions)


def _gathered(documents: list[Tensor], rows: int, buffer: Tensor) -> Iterator[Tensor]:
    """Block after block of ``rows`` token vectors, ``[t, E]``, each over the one before it; the last one filled up."""
    parts: list[Tensor] = []
    filled = 0
    for document in documents:
        while filled + len(document) >= rows:
            parts.append(document[: rows - filled])
            document = document[rows - filled :]
            yield torch.cat(parts, out=buffer)
            parts, filled = [], 0
        if len(document):
            parts.append(document)
            filled += len(document)
    if parts:
        torch.cat(parts, out=buffer[:filled])
        end = filled_up(filled, buffer.device, IMAGE_ROWS)
        buffer[filled:end] = 0
        yield buffer[:end]


def _vectors(document: Encoding) -> Tensor:
    return token_vectors(document).to("cpu", torch.float32)  # [n, E]
