"""Fused MaxSim over packed token embeddings: products are reduced where they are made and never written.

    score(q, d) = sum over i of max over j of  q[i] . d[j]

Shapes: M query tokens in all, T document tokens in all, E dimensions, P pairs of a query and a document. Products in
the embeddings' dtype, accumulation, maximum and sum in float32. The cost is reading the documents once (a query of 32
tokens does 32 operations a byte, a tenth of what the device could), so the loop ends at a document's own last token and
the embeddings are taken as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from workers.engine.kernels import DTYPES, launching
from workers.engine.kernels.tiles import Integers, tile


def reference(query: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
    """One pair, ``[m, E]`` and ``[t, E]``, in the dtype given: its score and each query token's best document token."""
    best, match = (query @ document.T).max(dim=1)  # [m]
    return best.to(torch.promote_types(best.dtype, torch.float32)).sum(), match


@triton.jit
def _add_products(products, query_ptr, document_ptr, in_query, in_document, column, E: tl.constexpr):  # type: ignore[no-untyped-def]
    """The share of some columns; what lies outside counts as zero."""
    query = tl.load(query_ptr + column[None, :], mask=in_query[:, None] & (column < E)[None, :], other=0.0)
    document = tl.load(document_ptr + column[None, :], mask=in_document[:, None] & (column < E)[None, :], other=0.0)
    return tl.dot(query, tl.trans(document), products, input_precision="ieee")  # no TF32


@triton.jit
def _best_tokens(  # type: ignore[no-untyped-def]  # Triton reads the annotations itself
    queries_ptr,  # [M, E]
    documents_ptr,  # [T, E]
    tiles_ptr,  # [W, 6] int64: Tiles.table
    scores_ptr,  # [P] float32, written where a tile is a whole pair
    best_ptr,  # [W, BLOCK_Q] float32, written where it is not
    match_ptr,  # [W, BLOCK_Q] int32, document token of each of these
    E: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
    UNROLL: tl.constexpr,
    WHOLE: tl.constexpr,
    MATCH: tl.constexpr,
):
    """One program: up to BLOCK_Q tokens of a query against one stretch of a document, BLOCK_D tokens at a time."""
    tile = tiles_ptr + tl.program_id(0).to(tl.int64) * 6
    query_start, query_rows = tl.load(tile), tl.load(tile + 1)
    document_start, document_rows = tl.load(tile + 2), tl.load(tile + 3)  # int64: T x E may exceed 2^31
    offset, slot = tl.load(tile + 4), tl.load(tile + 5)
    i = tl.arange(0, BLOCK_Q)
    j = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_E)
    query_ptr = queries_ptr + (query_start + i)[:, None] * E
    in_query = i < query_rows
    best = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    match = tl.zeros([BLOCK_Q], tl.int32)
    for first in range(0, document_rows, BLOCK_D):
        in_document = first + j < document_rows
        document_ptr = documents_ptr + (document_start + first + j)[:, None] * E
        products = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
        if UNROLL:
            for chunk in tl.static_range(0, E, BLOCK_E):
                products = _add_products(products, query_ptr, document_ptr, in_query, in_document, chunk + e, E)
        else:
            for chunk in range(0, E, BLOCK_E):
                products = _add_products(products, query_ptr, document_ptr, in_query, in_document, chunk + e, E)
        # A maximum passes over NaN. As +inf it wins, and the sum below turns it back.
        products = tl.where(products == products, products, float("inf"))
        products = tl.where(in_document[None, :], products, float("-inf"))
        if MATCH:
            highest, place = tl.max(products, axis=1, return_indices=True)
            match = tl.where(highest > best, (offset + first + place).to(tl.int32), match)
        else:
            highest = tl.max(products, axis=1)
        best = tl.maximum(best, highest)
    if WHOLE:
        score = tl.sum(tl.where(in_query, best, 0.0), axis=0)
        tl.store(scores_ptr + slot, tl.where(score == float("inf"), float("nan"), score))
    else:
        tl.store(best_ptr + slot * BLOCK_Q + i, best)
        if MATCH:
            tl.store(match_ptr + slot * BLOCK_Q + i, match)


@triton.jit
def _join_tiles(  # type: ignore[no-untyped-def]  # Triton reads the annotations itself
    best_ptr,  # [W, BLOCK_Q] float32
    match_ptr,  # [W, BLOCK_Q] int32
    pairs_ptr,  # [P, 6] int64: Tiles.joins
    scores_ptr,  # [P] float32
    matches_ptr,  # [sum of m over the pairs] int32
    BLOCK_Q: tl.constexpr,
    MATCH: tl.constexpr,
):
    """One program: a pair that several tiles share. Parts of its document by maximum, blocks of its query by sum."""
    pair = pairs_ptr + tl.program_id(0).to(tl.int64) * 6
    slot, blocks, parts = tl.load(pair), tl.load(pair + 1), tl.load(pair + 2)
    query_rows, place, match_start = tl.load(pair + 3), tl.load(pair + 4), tl.load(pair + 5)
    i = tl.arange(0, BLOCK_Q)
    total = tl.zeros([BLOCK_Q], tl.float32)
    for block in range(0, blocks):
        best = tl.full([BLOCK_Q], float("-inf"), tl.float32)
        match = tl.zeros([BLOCK_Q], tl.int32)
        in_query = block * BLOCK_Q + i < query_rows
        for part in range(0, parts):
            row = (slot + block * parts + part) * BLOCK_Q + i
            values = tl.load(best_ptr + row)
            if MATCH:
                match = tl.where(values > best, tl.load(match_ptr + row), match)
            best = tl.maximum(best, values)
        total += tl.where(in_query, best, 0.0)
        if MATCH:
            tl.store(matches_ptr + match_start + block * BLOCK_Q + i, match, mask=in_query)
    score = tl.sum(total, axis=0)
    tl.store(scores_ptr + place, tl.where(score == float("inf"), float("nan"), score))


def maxsim(
    queries: Tensor,
    query_lengths: Sequence[int],
    documents: Tensor,
    document_lengths: Sequence[int],
    pairs: tuple[Integers, Integers] | None = None,
    *,
    matches: bool = False,
    rows_per_part: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``queries [M, E]`` and ``documents [T, E]``, packed, to float32 ``[P]`` and, if asked for, ``[sum of m]`` int32.

    ``pairs`` are indices of queries and of documents; without them every query meets every document, queries in the
    outer order. The second result holds for each pair, one after another, each query token's best document token,
    counted within its document. A side without tokens scores NaN and its matches are -1; a NaN in a text makes that
    text's scores NaN. Documents longer than ``rows_per_part`` are read by several programs. Raises ``KernelError``.
    """
    assert queries.ndim == documents.ndim == 2 and queries.shape[1] == documents.shape[1] > 0
    assert queries.dtype == documents.dtype in DTYPES and queries.device == documents.device
    assert queries.is_contiguous() and documents.is_contiguous()
    assert sum(query_lengths) == len(queries) and sum(document_lengths) == len(documents)
    device, dimensions = documents.device, queries.shape[1]
    config = config_for(max(query_lengths, default=0), dimensions, queries.dtype, _shared_bytes(device))
    tiles = tile(
        query_lengths,
        document_lengths,
        pairs,
        block_q=config.block_q,
        block_d=config.block_d,
        programs=_programs(device),
        rows_per_part=rows_per_part,
        whole=not matches,
    )
    scores = torch.full((tiles.pairs,), torch.nan, device=device)
    found = torch.full((tiles.query_rows if matches else 0,), -1, dtype=torch.int32, device=device)
    if len(tiles.table):
        table, joins = _to_device([tiles.table, tiles.joins], device)
        slots = 0 if tiles.whole else len(tiles.table)
        best = torch.empty((slots, config.block_q), device=device)
        match = torch.empty((slots if matches else 0, config.block_q), dtype=torch.int32, device=device)
        with launching("MaxSim", documents):
            _best_tokens[(len(table),)](
                queries,
                documents,
                table,
                scores,
                best,
                match,
                E=dimensions,
                BLOCK_Q=config.block_q,
                BLOCK_D=config.block_d,
                BLOCK_E=config.block_e,
                UNROLL=config.unroll,
                WHOLE=tiles.whole,
                MATCH=matches,
                num_warps=config.warps,
                num_stages=config.stages,
            )
            if not tiles.whole:
                _join_tiles[(len(joins),)](
                    best, match, joins, scores, found, BLOCK_Q=config.block_q, MATCH=matches, num_warps=1
                )
    return scores, found if matches else None


def _to_device(tables: list[Integers], device: torch.device) -> tuple[Tensor, ...]:
    """One copy that nobody waits for."""
    buffer = torch.from_numpy(np.concatenate(tables))
    if device.type == "cuda":
        buffer = buffer.pin_memory().to(device, non_blocking=True)
    return buffer.split([len(table) for table in tables])


def _programs(device: torch.device) -> int:
    """Two to a multiprocessor: one loads while the other multiplies."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@dataclass(frozen=True, slots=True)
class Config:
    block_q: int
    block_d: int
    block_e: int
    unroll: bool
    warps: int
    stages: int


# In the order of preference. Reading is the limit up to 64 query tokens: stages keep it going, and several programs
# share a processor. Page-sized queries are limited by multiplying: 128 rows at a time, the accumulator over twice the
# warps. The small ones are for wide embeddings.
_BLOCKS = (  # block_q, block_d, warps, stages
    (128, 64, 8, 3),
    (64, 64, 4, 3),
    (64, 32, 4, 2),
    (32, 64, 4, 3),
    (32, 32, 4, 2),
    (16, 64, 4, 3),
    (16, 32, 4, 2),
)
_BLOCKS_FLOAT32 = _BLOCKS[4::2]  # exact products have no tensor cores: small tiles, or the registers overflow
_UNROLLED = 4  # chunks of a row at most: the query then stays where it is; more take minutes to compile


def config_for(longest_query: int, dimensions: int, dtype: torch.dtype, shared_bytes: int) -> Config:
    """The only things compiled in: a handful of variants for a model, whatever its requests look like.

    No more query rows than there are tokens, and two programs to a multiprocessor of ``shared_bytes``. ``block_e``
    divides the usual dimensions (96, 128, 384), so that nothing is multiplied by padding; a product needs 16 at least.
    """
    block_e = next((block for block in (128, 64, 32) if dimensions % block == 0), 16 if dimensions <= 16 else 32)
    chunks = -(-dimensions // block_e)
    unroll = chunks <= _UNROLLED
    held = max(16, triton.next_power_of_2(longest_query))

    def fits(block_q: int, block_d: int, warps: int, stages: int) -> bool:
        rows = (block_q + block_d * stages) * chunks if unroll else (block_q + block_d) * stages
        return block_q <= held and 2 * rows * block_e * dtype.itemsize <= shared_bytes

    blocks = _BLOCKS_FLOAT32 if dtype == torch.float32 else _BLOCKS
    block_q, block_d, warps, stages = next((sizes for sizes in blocks if fits(*sizes)), blocks[-1])
    return Config(block_q, block_d, block_e, unroll, warps, stages)


def _shared_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
    return 100 * 1024
