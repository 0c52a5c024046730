"""MaxSim on the CPU over documents that lie anywhere in memory, as a cache gives them.

Laying a thousand documents end to end takes as long as their MaxSim. So few queries visit each document where it lies:
one small product, whose maximum is taken while it is in the processor's cache. For many queries the products are the
greater part, and blocks of documents are laid into a buffer that is used again and again.

Shapes: Q queries of M tokens in all, D documents, E dimensions, n tokens of one document, t of a block."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from workers.engine.caches.compression import token_vectors, write_vectors
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.maxsim import maxsim

_FEW = 128  # query tokens
_BUFFER_BYTES = 2**23


def maxsim_where_they_lie(queries: Tensor, query_lengths: list[int], documents: list[Encoding]) -> Tensor:
    """``queries [M, E]`` packed; float32 ``[Q, D]``. What ``maxsim`` gives for the documents' token vectors, packed."""
    queries = queries.to("cpu", torch.float32)
    if len(queries) > _FEW:
        blocks = _blocks([_length(document) for document in documents], _BUFFER_BYTES // (4 * queries.shape[1]))
        scores = [
            maxsim(queries, query_lengths, rows, lengths)
            for rows, lengths in _gathered(documents, blocks, queries.shape[1])
        ]
        return torch.cat(scores, dim=1)
    best = torch.full((len(documents), len(queries)), torch.nan)  # [D, M]
    for row, document in zip(best, documents, strict=True):
        if _length(document):
            vectors = token_vectors(document).to("cpu", torch.float32)  # [n, E]
            torch.amax(queries @ vectors.T, dim=1, out=row)  # the tokens side by side: [M, n]
    scores = [part.sum(dim=1) for part in best.split(query_lengths, dim=1)]
    return torch.stack([s if n else torch.full_like(s, torch.nan) for s, n in zip(scores, query_lengths, strict=True)])


def _gathered(
    documents: list[Encoding], blocks: Iterator[tuple[int, list[int]]], dimensions: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """Block after block end to end in float32, ``[t, E]``, each over the one before it, and the lengths in it."""
    buffer = torch.empty(0, dimensions)
    for first, lengths in blocks:
        rows, start = sum(lengths), 0
        if rows > len(buffer):
            buffer = torch.empty(rows, dimensions)
        for document, length in zip(documents[first : first + len(lengths)], lengths, strict=True):
            if length:
                write_vectors(document, buffer[start : start + length])
            start += length
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


def _length(document: Encoding) -> int:
    return 0 if document.tokens is None else len(document.tokens)
