"""MaxSim: for every query token its best document token, summed over the query. One function; the device decides how it
runs.

    score(q, d) = sum over i of max over j of  q[i] . d[j]

Shapes: Q queries of M tokens in all, D documents of T tokens in all, E dimensions. Nothing is padded: the maximum runs
over a document's own tokens, so neither zeros nor a longer neighbour can win. Products in the embeddings' dtype
(float32 on the CPU), maximum and sum in float32. A side without tokens scores NaN; a NaN in a text makes that text's
scores NaN and no others.

On CUDA the fused kernel, which never writes the products. Where it cannot run for want of Triton or of the dtype, a
GPU takes the same way as the CPU: products by the block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.engine import kernels

_BLOCK_BYTES = {
    "cpu": 2**22,
    "cuda": 2**28,
}  # of token products at a time: what the caches hold; what a GPU fills itself with


def maxsim(queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]) -> Tensor:
    """``queries [M, E]``, ``documents [T, E]``, both packed and on one device; returns float32 ``[Q, D]`` there.

    Raises ``KernelError`` if the kernel should run and does not.
    """
    if kernels.available(queries, documents) and queries.dtype == documents.dtype:
        from workers.engine.kernels import maxsim as kernel

        scores, _ = kernel.maxsim(queries.contiguous(), query_lengths, documents.contiguous(), document_lengths)
        return scores.view(len(query_lengths), len(document_lengths))
    return _by_blocks(queries, query_lengths, documents, document_lengths)


def _by_blocks(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]
) -> Tensor:
    """One GEMM per block of whole documents over all queries at once, then a maximum per document and a sum per
    query."""
    device = documents.device
    if device.type == "cpu":
        queries, documents = queries.float(), documents.float()
    best = torch.full((len(document_lengths), len(queries)), -torch.inf, device=device)  # [D, M]
    rows_per_block = max(1, _BLOCK_BYTES[device.type] // (4 * max(1, len(queries))))
    start = 0
    for first, lengths in _blocks(document_lengths, rows_per_block):
        owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)  # [t]
        products = (documents[start : start + len(owner)] @ queries.T).float()  # [t, M]
        best[first : first + len(lengths)].scatter_reduce_(0, owner[:, None].expand_as(products), products, "amax")
        start += len(owner)
    scores = _sum_per_query(best, query_lengths)  # [Q, D]
    scores[[n == 0 for n in query_lengths]] = torch.nan
    scores[:, [n == 0 for n in document_lengths]] = torch.nan
    return scores


def _blocks(lengths: Sequence[int], rows: int) -> list[tuple[int, list[int]]]:
    """Whole documents in order, at most ``rows`` tokens a block unless one document alone has more."""
    blocks: list[tuple[int, list[int]]] = []
    room = 0
    for index, length in enumerate(lengths):
        if not blocks or length > room:
            blocks.append((index, []))
            room = rows
        blocks[-1][1].append(length)
        room -= length
    return blocks


def _sum_per_query(best: Tensor, query_lengths: Sequence[int]) -> Tensor:
    return torch.stack([part.sum(dim=1) for part in best.split(list(query_lengths), dim=1)])  # [Q, D]
