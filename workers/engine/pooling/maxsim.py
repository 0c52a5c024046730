"""MaxSim: for every query token its best document token, summed over the query. The device decides how it runs.

    score(q, d) = sum over i of max over j of  q[i] . d[j]

Shapes: Q queries of M tokens in all, D documents of T tokens in all, E dimensions, P pairs. Nothing is padded: the
maximum runs over a document's own tokens, so neither zeros nor a longer neighbour can win. Products in the embeddings'
dtype (float32 on the CPU), maximum and sum in float32. A side without tokens scores NaN; a NaN in a text makes that
text's scores NaN and no others.

On CUDA the fused kernel, which never writes the products. Where it cannot run for want of Triton or of the dtype, a
GPU takes the same way as the CPU: products by the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.engine import kernels
from workers.engine.forward.steady_rows import fill_rows, products

Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # [P] indices of queries and [P] of documents

_BLOCK_BYTES = {
    "cpu": 2**24,
    "cuda": 2**28,
}  # of what is written at a time: what the caches hold; what a GPU fills itself with
IMAGE_ROWS = 256  # rows: a block is a whole number of these
_FILTERS = 8  # query rows: what a vector of AVX2 holds
_CHUNK = (
    16  # rows: most chunks lie within one document, so that a sixteenth of the products is left to sort by document
)


def maxsim(queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]) -> Tensor:
    """``queries [M, E]``, ``documents [T, E]``, both packed and on one device; returns float32 ``[Q, D]`` there.

    Raises ``KernelError`` if the kernel should run and does not.
    """
    if _fused(queries, documents):
        from workers.engine.kernels import maxsim as kernel

        scores, _ = kernel.maxsim(queries.contiguous(), query_lengths, documents.contiguous(), document_lengths)
        return scores.view(len(query_lengths), len(document_lengths))
    return _by_blocks(queries, query_lengths, documents, document_lengths)


def maxsim_pairs(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int], pairs: Pairs
) -> Tensor:
    """The same for chosen pairs only, float32 ``[P]``: one launch on CUDA, query by query elsewhere."""
    if _fused(queries, documents):
        from workers.engine.kernels import maxsim as kernel

        return kernel.maxsim(queries.contiguous(), query_lengths, documents.contiguous(), document_lengths, pairs)[0]
    scores = torch.full((len(pairs[0]),), torch.nan, device=documents.device)
    query_of, document_of = pairs
    query_parts, document_parts = queries.split(list(query_lengths)), documents.split(list(document_lengths))
    for query in np.unique(query_of):
        places = np.flatnonzero(query_of == query)
        partners, position = np.unique(document_of[places], return_inverse=True)
        own = torch.cat([document_parts[d] for d in partners])
        lengths = [document_lengths[d] for d in partners]
        row = _by_blocks(query_parts[query], [query_lengths[query]], own, lengths)[0]
        scores[places] = row[position]
    return scores


def maxsim_matches(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int], pairs: Pairs
) -> tuple[Tensor, Tensor]:
    """Scores ``[P]`` and, pair after pair, each query token's best document token ``[sum of m]`` int32, counted within
    its document (the first of equals); -1 where the document has no tokens. For a few pairs: to show why they
    score."""
    if _fused(queries, documents):
        from workers.engine.kernels import maxsim as kernel

        scores, found = kernel.maxsim(
            queries.contiguous(), query_lengths, documents.contiguous(), document_lengths, pairs, matches=True
        )
        assert found is not None
        return scores, found
    query_parts, document_parts = queries.split(list(query_lengths)), documents.split(list(document_lengths))
    totals, matches = [], []
    for query, document in zip(*pairs, strict=True):
        q, d = query_parts[query], document_parts[document]
        if not len(q) or not len(d):
            totals.append(torch.tensor(torch.nan, device=d.device))
            matches.append(torch.full((len(q),), -1, device=d.device))
            continue
        best, match = _products(d, q).max(dim=0)  # [m]; a NaN is the largest
        totals.append(best.sum())
        matches.append(match)
    if not totals:
        return torch.empty(0, device=documents.device), torch.empty(0, dtype=torch.int32, device=documents.device)
    return torch.stack(totals), torch.cat(matches).to(torch.int32)


def _fused(queries: Tensor, documents: Tensor) -> bool:
    return kernels.available(queries, documents) and queries.dtype == documents.dtype


def _by_blocks(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]
) -> Tensor:
    written = len(queries) + (documents.shape[1] if documents.dtype != torch.float32 else 0)  # numbers a row
    rows = max(1, _BLOCK_BYTES[documents.device.type] // (4 * IMAGE_ROWS * max(1, written))) * IMAGE_ROWS
    whole = len(documents) // IMAGE_ROWS * IMAGE_ROWS  # so that what must be filled up is less than an image
    blocks = [*documents[:whole].split(rows), documents[whole:]]
    return maxsim_of_blocks(queries, query_lengths, blocks, document_lengths)


def maxsim_of_blocks(
    queries: Tensor, query_lengths: Sequence[int], blocks: Iterable[Tensor], document_lengths: Sequence[int]
) -> Tensor:
    """Products of a block of documents with all queries at once, a maximum per document, a sum per query.

    Blocks are cut wherever their size falls: a document in two of them has its maximum taken twice. The last one may
    be filled up with rows of no document."""
    tokens, start = len(queries), 0
    queries = fill_rows(queries, _FILTERS)
    best = torch.full((len(document_lengths), len(queries)), -torch.inf, device=queries.device)  # [D, M]
    owner = torch.repeat_interleave(
        torch.arange(len(document_lengths)), torch.tensor(document_lengths, dtype=torch.long)
    )
    for block in blocks:
        owners = owner[start : start + len(block)]
        start += len(owners)
        _keep_maximum(best, _products(block, queries)[: len(owners)], owners)
    scores = _sum_per_query(best[:, :tokens], query_lengths)  # [Q, D]
    scores[[n == 0 for n in query_lengths]] = torch.nan
    scores[:, [n == 0 for n in document_lengths]] = torch.nan
    return scores


def _products(documents: Tensor, queries: Tensor) -> Tensor:
    """``[t, E]`` and ``[M, E]`` to float32 ``[t, M]``.

    On the CPU the queries go as the filters of a 1 × 1 convolution over images with the channels last, which is the
    same sum: oneDNN multiplies the documents where they lie, while a GEMM copies them into its own order first. Images
    of one size alone, whatever remains filled up: a score must not depend on what was computed beside it."""
    if documents.device.type != "cpu":
        return (documents @ queries.T).float()
    (rows, dimensions), wanted = documents.shape, len(queries)
    if not rows or not wanted:
        return torch.empty(rows, wanted)
    if not torch.backends.mkldnn.is_available():
        return products(documents.float(), queries.float())
    documents, queries = fill_rows(documents.float().contiguous(), IMAGE_ROWS), fill_rows(queries.float(), _FILTERS)
    images = documents.view(-1, IMAGE_ROWS, 1, dimensions).permute(0, 3, 1, 2)  # [n, E, IMAGE_ROWS, 1], a view
    filters = queries[:, :, None, None]
    # Not F.conv2d, which takes a GEMM after all where images are few.
    convolved = torch.mkldnn_convolution(images, filters, None, (0, 0), (1, 1), (1, 1), 1)  # [n, M, IMAGE_ROWS, 1]
    return convolved.permute(0, 2, 3, 1).reshape(len(documents), len(queries))[:rows, :wanted]


def _keep_maximum(best: Tensor, products: Tensor, owners: Tensor) -> None:
    """Raise ``best [D, M]`` by ``products [t, M]`` whose documents are ``owners [t]``, in order and on the CPU."""
    whole = len(owners) // _CHUNK * _CHUNK
    chunks, chunk_owners = products[:whole].unflatten(0, (-1, _CHUNK)), owners[:whole].unflatten(0, (-1, _CHUNK))
    pure = chunk_owners[:, 0] == chunk_owners[:, -1]  # [c]
    mixed = ~pure
    rest_owners = torch.cat([chunk_owners[pure, 0], chunk_owners[mixed].flatten(), owners[whole:]])  # [r]
    pure, mixed, rest_owners = (x.to(best.device) for x in (pure, mixed, rest_owners))
    rest = torch.cat([chunks.amax(dim=1)[pure], chunks[mixed].flatten(0, 1), products[whole:]])  # [r, M]
    best.scatter_reduce_(0, rest_owners[:, None].expand_as(rest), rest, "amax")


def _sum_per_query(best: Tensor, query_lengths: Sequence[int]) -> Tensor:
    """In float64, where the order of a few hundred numbers does not show: torch has one for each shape."""
    parts = best.split(list(query_lengths), dim=1)
    return torch.stack([part.sum(dim=1, dtype=torch.float64) for part in parts]).float()  # [Q, D]
