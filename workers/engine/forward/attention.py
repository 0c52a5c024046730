"""Packed attention: one function, registered with transformers, that never looks across the border of a piece.

No mask function is registered under the same name, so transformers builds no mask at all. On CUDA in half precision one
variable-length call serves the whole row; everywhere else SDPA runs once per group of equal pieces.

On the CPU a causal text is computed in blocks of places counted from its beginning, so that a token's numbers are the
same to the bit wherever the text was cut into pieces.

Shapes: T tokens, T' with those that fill the row up, H query heads, J key heads, D head dim, n pieces of length L after
a prefix of length P, of whose own tokens the first A are keys.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from workers.engine.errors import EngineError
from workers.engine.forward.kept_prefix import keep_and_extend
from workers.engine.forward.packed_batch import Group, PackedBatch

PACKED_ATTENTION = "assay_packed"

_PLACES = 32  # in a block; fewer cost more calls, more compute more that nobody asked for

# What models pass along that does not change the result of one forward without a cache. Anything else that is set
# (softcap, s_aux, position_bias …) would be ignored silently, so it is refused.
_HARMLESS = frozenset({
    "position_ids", "encoder_hidden_states", "encoder_attention_mask", "use_cache", "cache", "past_key_values",
    "cache_position", "deterministic", "output_attentions", "output_hidden_states", "return_dict",
    "position_embeddings", "head_mask",
})  # fmt: skip


def packed_attention(
    module: nn.Module,
    query: Tensor,  # [1, H, T', D]
    key: Tensor,  # [1, J, T', D]
    value: Tensor,  # [1, J, T', D]
    attention_mask: Tensor | None,
    *,
    packed_batch: PackedBatch,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of every piece to itself and its prefix; returns ``[1, T', H, D]``. ``sliding_window`` is exclusive: |i
    - j| < w."""
    refused = sorted(name for name, given in others.items() if given is not None and name not in _HARMLESS)
    if refused or attention_mask is not None or dropout:
        raise EngineError(
            "unsupported_attention",
            f"Packed attention cannot honour {refused or 'a mask or dropout'}; run this model padded.",
        )
    count = len(packed_batch.token_ids)  # behind them the row is filled up
    keys, values = keep_and_extend(module, key[0, :, :count], value[0, :, :count], packed_batch)
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    half = query.dtype in (torch.float16, torch.bfloat16)
    attend = (
        _varlen
        if query.device.type == "cuda"
        and half
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
        and not (packed_batch.narrowed and (causal or sliding_window is not None))  # distances would be counted wrongly
        else _grouped
    )
    return attend(query[0], keys, values, packed_batch, causal, sliding_window, scaling)[None], None  # [1, T', H, D]


def _varlen(
    query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, causal: bool, window: int | None, scale: float | None
) -> Tensor:
    """One flash call; its causal mask is aligned to the last key, as a piece after its prefix needs it."""
    query, key, value = (x.transpose(0, 1) for x in (query, key, value))  # [T, H, D], [T, J, D]
    if batch.key_rows is not None:
        key, value = key[batch.key_rows], value[batch.key_rows]
    reach = -1 if window is None else window - 1
    attended = varlen_attn(
        query, key, value, batch.cu_lengths, batch.cu_attended, batch.max_length, batch.max_attended,
        scale=scale, window_size=(reach, 0 if causal else reach), enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return cast(Tensor, attended)  # [T, H, D]; a pair only when the log-sum-exp is asked for


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, causal: bool, window: int | None, scale: float | None
) -> Tensor:
    # Only equal lengths share a call: similar ones padded under a mask took longer than a call each (8 texts of 230 to
    # 255 tokens, 12 heads: 19 against 16 ms).
    heads, rows, head_dim = query.shape
    if len(key) != heads:
        key, value = (x.repeat_interleave(heads // len(x), dim=0) for x in (key, value))  # [H, T, D]
    out = query.new_empty(rows, heads, head_dim)
    out[len(batch.token_ids) :] = 0
    for group in batch.groups_cpu:
        given = _own(query, group), _with_prefix(key, group), _with_prefix(value, group)
        if causal and query.device.type == "cpu" and group.attended == group.length:
            attended = _by_places(*given, group.prefix_length, window, scale)  # [n, H, L, D]
        else:
            mask = _mask(group, causal, window, query.device)
            attended = F.scaled_dot_product_attention(
                *given, attn_mask=mask, is_causal=causal and mask is None, scale=scale
            )
        end = group.start + group.count * group.length
        out[group.start : end].view(group.count, group.length, heads, head_dim).copy_(attended.transpose(1, 2))
    return out


def _by_places(
    query: Tensor, key: Tensor, value: Tensor, prefix: int, window: int | None, scale: float | None
) -> Tensor:
    """``query [n, H, L, D]`` behind P places, ``key`` and ``value [n, H, P + L, D]``. A block of places takes the keys
    up to its own end, whichever pieces they are of: the shapes that choose SDPA's kernels are those of the places."""
    total = key.shape[2]
    before, behind = prefix % _PLACES, -total % _PLACES
    query = F.pad(query, (0, 0, before, behind))
    key, value = (F.pad(x, (0, 0, 0, behind)) for x in (key, value))
    places = torch.arange(total + behind)
    blocks = []
    for block in places[prefix - before :].split(_PLACES):
        end = int(block[-1]) + 1
        distance = block[:, None] - places[:end]  # [_PLACES, end]
        mask = (distance >= 0) & (distance < (window or end))
        rows = query[:, :, block[0] - prefix + before : end - prefix + before]
        attended = F.scaled_dot_product_attention(rows, key[:, :, :end], value[:, :, :end], attn_mask=mask, scale=scale)
        blocks.append(attended)
    return torch.cat(blocks, dim=2)[:, :, before : before + total - prefix]


def _own(x: Tensor, group: Group) -> Tensor:
    rows = x[:, group.start : group.start + group.count * group.length]
    return rows.unflatten(1, (group.count, group.length)).transpose(0, 1)  # [n, H, L, D], a view


def _with_prefix(x: Tensor, group: Group) -> Tensor:
    own = _own(x, group)[:, :, : group.attended]
    if not group.prefix_length:
        return own
    parts = [x[:, start : start + count] for start, count in group.prefix]
    return torch.cat([*(part.expand(group.count, *part.shape) for part in parts), own], dim=2)  # [n, H, P + A, D]


def _mask(group: Group, causal: bool, window: int | None, device: torch.device) -> Tensor | None:
    """True where a token attends, ``[L, P + A]``; None where SDPA's own causal flag (or nothing) says the same."""
    reach = end = group.prefix_length + group.length
    if window is not None and window < end:
        reach = window
    elif not causal or not (group.prefix_length or group.attended < group.length):
        return None
    query_places = torch.arange(group.prefix_length, end, device=device)
    key_places = torch.arange(group.prefix_length + group.attended, device=device)
    distance = query_places[:, None] - key_places  # [L, P + A]
    return (distance >= 0) & (distance < reach) if causal else distance.abs() < reach


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
