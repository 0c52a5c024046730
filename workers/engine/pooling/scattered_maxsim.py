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
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.maxsim import maxsim

_BUFFER_BYTES = 2**25


def maxsim_where_they_lie(queries: Tensor, query_lengths: list[int], documents: list[Encoding]) -> Tensor:
    """``queries [M, E]`` packed; float32 ``[Q, D]``. What ``maxsim`` gives for the documents' token vectors, packed."""
    queries = queries.to("cpu", torch.float32)
    blocks = _gathered(documents, queries.shape[1])
    return torch.cat([maxsim(queries, query_lengths, rows, lengths) for rows, lengths in blocks], dim=1)


def _gathered(documents: list[Encoding], dimensions: int) -> Iterator[tuple[Tensor, list[int]]]:
    """Block after block end to end in float32, ``[t, E]``, each over the one before it, and the lengths in it."""
    buffer = torch.empty(0, dimensions)
    vectors = [_length(document) for document in documents]
    most = min(sum(vectors), _BUFFER_BYTES // (4 * dimensions))
    for first, lengths in _blocks(vectors, most):
        rows = sum(lengths)
        if rows > len(buffer):
            buffer = torch.empty(max(rows, most), dimensions)
        members = [_vectors(d) for d in documents[first : first + len(lengths)] if _length(d)]
        if members:
            torch.cat(members, out=buffer[:rows])
        yield buffer[:rows], lengths


def _blocks(lengths: list[int], most: int) -> Iterator[tuple[int, list[int]]]:
    """Neighbours of ``most`` rows together, unless one alone has more: the first one's place, and the lengths."""
    first, rows = 0, 0
    for place, length in enumerate(lengths):
        if place > first and rows + length > most:
            yield first, lengths[first:place]
            first, rows = place, 0
        rows += length
    yield first, lengths[first:]


def _vectors(document: Encoding) -> Tensor:
    return token_vectors(document).to("cpu", torch.float32)  # [n, E]


def _length(document: Encoding) -> int:
    return 0 if document.tokens is None else len(document.tokens)
