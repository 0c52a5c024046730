"""Log-sum-exp of a vocabulary's logits that are never written.

    logits = cap * tanh((hidden . weight + bias) / cap)         without a cap: hidden . weight + bias
    logprob(n, label) = logits[n, label] - log(sum over v of exp(logits[n, v]))

The caller multiplies the few rows of its labels itself; here is the sum. Shapes: N rows, E hidden, V vocabulary.
Products in the rows' dtype, everything behind them in float32. Each program of the two-dimensional grid (blocks of rows
× blocks of the vocabulary) writes one partial sum per row; ``torch.logsumexp`` joins them in a fixed order, so a result
repeats to the bit. Blocks of rows are the inner index: they share a block of the weight while it is in the cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from workers.engine.kernels import DTYPES, launching


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None = None, softcap: float | None = None) -> Tensor:
    """``[N]``: the log-sum-exp over the whole vocabulary, in the dtype given."""
    logits = F.linear(hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype))  # [N, V]
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(dim=-1)


@triton.jit(do_not_specialize=["rows"])
def _partial_logsumexp(  # type: ignore[no-untyped-def]  # Triton reads the annotations itself
    hidden_ptr,  # [N, E]
    weight_ptr,  # [V, E]
    bias_ptr,  # [V], or anything where there is none
    partials_ptr,  # [N, blocks of V] float32
    rows,  # N
    softcap,
    V: tl.constexpr,
    E: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_E: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    v = tl.program_id(1).to(tl.int64) * BLOCK_V + tl.arange(0, BLOCK_V)  # int64: V x E may exceed 2^31
    e = tl.arange(0, BLOCK_E)
    logits = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)
    for chunk in range(0, E, BLOCK_E):
        column = chunk + e
        hidden = tl.load(
            hidden_ptr + n[:, None] * E + column[None, :], mask=(n < rows)[:, None] & (column < E)[None, :], other=0.0
        )
        weight = tl.load(
            weight_ptr + v[:, None] * E + column[None, :], mask=(v < V)[:, None] & (column < E)[None, :], other=0.0
        )
        logits = tl.dot(hidden, tl.trans(weight.to(hidden.dtype)), logits, input_precision="ieee")
    if HAS_BIAS:
        logits += tl.load(bias_ptr + v, mask=v < V, other=0.0).to(tl.float32)[None, :]
    if HAS_CAP:
        logits = softcap * (2 * tl.sigmoid(2 * logits / softcap) - 1)  # tanh
    logits = tl.where((v < V)[None, :], logits, float("-inf"))
    highest = tl.max(logits, axis=1)
    partial = highest + tl.log(tl.sum(tl.exp(logits - highest[:, None]), axis=1))  # a NaN passes through the sum
    blocks: tl.constexpr = (V + BLOCK_V - 1) // BLOCK_V
    tl.store(partials_ptr + n * blocks + tl.program_id(1), partial, mask=n < rows)


def vocabulary_logsumexp(
    hidden: Tensor, weight: Tensor, bias: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """``hidden [N, E]``, ``weight [V, E]``, ``bias [V]`` to float32 ``[N]``. Raises ``KernelError``."""
    assert hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1] and len(weight) > 0
    assert hidden.dtype in DTYPES and weight.dtype in DTYPES
    assert bias is None or bias.shape == weight.shape[:1]
    assert softcap is None or softcap > 0
    hidden, weight = hidden.contiguous(), weight.contiguous()
    config = config_for(len(hidden), hidden.dtype)
    blocks = triton.cdiv(len(weight), config.block_v)
    partials = torch.empty((len(hidden), blocks), device=hidden.device)  # float32
    if len(hidden):
        with launching("label log-probability", hidden):
            _partial_logsumexp[(triton.cdiv(len(hidden), config.block_n), blocks)](
                hidden,
                weight,
                weight if bias is None else bias,
                partials,
                len(hidden),
                1.0 if softcap is None else float(softcap),
                V=len(weight),
                E=hidden.shape[1],
                BLOCK_N=config.block_n,
                BLOCK_V=config.block_v,
                BLOCK_E=config.block_e,
                HAS_BIAS=bias is not None,
                HAS_CAP=softcap is not None,
                num_warps=config.warps,
                num_stages=config.stages,
            )
    return partials.logsumexp(dim=-1)


@dataclass(frozen=True, slots=True)
class Config:
    block_n: int
    block_v: int
    block_e: int
    warps: int
    stages: int


def config_for(rows: int, dtype: torch.dtype) -> Config:
    """Up to some two hundred rows reading the weight is the limit, so a block holds as many rows as there are and the
    vocabulary is cut finely; the variants are few, and the number of rows is not compiled in."""
    block_n = next((block for block in (16, 32, 64) if rows <= block), 64)
    if dtype == torch.float32:  # exact products have no tensor cores: small tiles, or the registers overflow
        return Config(block_n=min(block_n, 32), block_v=64, block_e=32, warps=4, stages=2)
    return Config(block_n, block_v=128, block_e=64, warps=4 if block_n < 64 else 8, stages=3)
