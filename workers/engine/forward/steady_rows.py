"""Rows whose numbers are the same to the bit whatever rows are computed beside them, on the CPU.

Two things tie a row's last bit to its company. A GEMM leaves the rows and columns that do not fill its tiles to other
kernels, which sum in another order; and elementwise functions compute the last numbers of a tensor, or of a thread's
part of it, by scalar code that rounds differently. Neither has anything left where all counts are multiples of a block.
So the row of a micro-batch is filled up to one, and so is every matrix that a head sees. A row more or less then
changes nothing for the others: they may come from a cache, run alone or run again on another worker.

Other devices choose their kernels by shape in more ways than this could steer; there nothing is filled up."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 16  # rows; a multiple of every tile's height and of the vectors of AVX2 and AVX-512
_MANY_THREADS_BLOCK = 48  # a third of what three threads share is a multiple of BLOCK again


def row_block() -> int:
    """The number whose multiples are steady with as many threads as torch has."""
    return BLOCK if torch.get_num_threads() <= 2 else _MANY_THREADS_BLOCK


def filled(count: int, device: torch.device, block: int | None = None) -> int:
    """The count of rows to compute where ``count`` are wanted: whole blocks, of ``row_block`` rows where none is
    given."""
    block = block or row_block()
    return count if device.type != "cpu" else -(-count // block) * block


def fill_rows(rows: Tensor, block: int | None = None) -> Tensor:
    """``[n, ...]`` to as many rows as ``filled`` says; those that come behind are zero."""
    missing = filled(len(rows), rows.device, block) - len(rows)
    return rows if not missing else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def by_rows(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """``function`` maps ``[n, E]`` to ``[n, F]``, row by row."""
    return function(fill_rows(rows))[: len(rows)]


def products(left: Tensor, right: Tensor) -> Tensor:
    """``left [n, E]`` and ``right [m, E]`` to ``[n, m]``: each of the dot products as if it were the only one."""
    return F.linear(fill_rows(left), fill_rows(right))[: len(left), : len(right)]
