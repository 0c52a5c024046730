"""The one object that crosses layers: many sequences laid end to end on a single row, never padded.

Shapes: T tokens on the row, N pieces, G groups. A piece may *continue* an earlier one (its prefix): its positions go on
where the prefix ends and it attends to the prefix and to itself, so that items of one query share the query's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    token_ids: Sequence[int]
    prefix: int | None = None  # index of the piece that this one continues
    token_types: Sequence[int] | None = None  # one per token, where the model takes them (which text of a pair)


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbours on the row with one length and one prefix: attention takes them in a single call, as views."""

    start: int
    count: int
    length: int
    prefix_start: int
    prefix_length: int  # 0: no prefix


@dataclass(frozen=True, slots=True)
class PoolingCursor:
    """Where each piece begins and ends: ``_cpu`` steers, device tensors gather, so pooling never waits."""

    lengths_cpu: tuple[int, ...]
    first: Tensor  # [N]
    last: Tensor  # [N]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    token_ids_cpu: npt.NDArray[np.int64]  # [T]
    starts_cpu: tuple[int, ...]  # N
    groups_cpu: tuple[Group, ...]  # G
    max_length: int
    max_attended: int
    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    key_rows: Tensor | None  # row of every key a piece attends to, prefix first; None without prefixes
    cu_lengths: Tensor  # [N + 1] int32, borders of the pieces as queries
    cu_attended: Tensor  # [N + 1] int32, borders of what they attend to
    token_types: Tensor | None  # [T]; None: all of type 0
    cursor: PoolingCursor

    @property
    def lengths_cpu(self) -> tuple[int, ...]:
        return self.cursor.lengths_cpu


def pack(pieces: Sequence[Piece], *, device: torch.device, position_offset: int = 0) -> PackedBatch:
    """Lay the pieces end to end. Neighbours of equal length share an attention call: sort if order is free."""
    lengths = [len(piece.token_ids) for piece in pieces]
    borders = [0, *accumulate(lengths)]
    starts = borders[:-1]
    prefixes = [piece.prefix for piece in pieces]
    prefix_lengths = [0 if p is None else lengths[p] for p in prefixes]
    attended = [length + prefix for length, prefix in zip(lengths, prefix_lengths, strict=True)]
    token_ids = np.concatenate([np.asarray(piece.token_ids, dtype=np.int64) for piece in pieces])  # [T]
    positions = (
        np.concatenate([np.arange(p, p + n) for p, n in zip(prefix_lengths, lengths, strict=True)]) + position_offset
    )  # [T]
    first, last = np.array(starts), np.array(borders[1:]) - 1
    blocks = [token_ids, positions, first, last, np.array(borders), np.array([0, *accumulate(attended)])]
    typed = any(piece.token_types is not None for piece in pieces)
    if typed:
        types = [
            n * [0] if piece.token_types is None else piece.token_types
            for piece, n in zip(pieces, lengths, strict=True)
        ]
        blocks.append(np.concatenate([np.asarray(part, dtype=np.int64) for part in types]))
    if any(p is not None for p in prefixes):
        blocks.append(_key_rows(starts, lengths, prefixes))
    views = _to_device(blocks, device)
    optional = iter(views[6:])
    return PackedBatch(
        token_ids_cpu=token_ids,
        starts_cpu=tuple(starts),
        groups_cpu=tuple(_groups(starts, lengths, prefixes)),
        max_length=max(lengths),
        max_attended=max(attended),
        token_ids=views[0],
        positions=views[1],
        cursor=PoolingCursor(tuple(lengths), views[2], views[3]),
        cu_lengths=views[4].to(torch.int32),
        cu_attended=views[5].to(torch.int32),
        token_types=next(optional) if typed else None,
        key_rows=next(optional, None),
    )


def _key_rows(starts: list[int], lengths: list[int], prefixes: list[int | None]) -> npt.NDArray[np.int64]:
    rows = []
    for start, length, prefix in zip(starts, lengths, prefixes, strict=True):
        if prefix is not None:
            rows.append(np.arange(starts[prefix], starts[prefix] + lengths[prefix]))
        rows.append(np.arange(start, start + length))
    return np.concatenate(rows)


def _groups(starts: list[int], lengths: list[int], prefixes: list[int | None]) -> list[Group]:
    groups = []
    for (length, prefix), members in groupby(range(len(starts)), key=lambda i: (lengths[i], prefixes[i])):
        indices = list(members)
        place = (0, 0) if prefix is None else (starts[prefix], lengths[prefix])
        groups.append(Group(starts[indices[0]], len(indices), length, *place))
    return groups


def _to_device(blocks: Sequence[npt.NDArray[np.int64]], device: torch.device) -> tuple[Tensor, ...]:
    """All integers in one buffer, copied once; the parts are views of it."""
    buffer = torch.from_numpy(np.concatenate(blocks).astype(np.int64, copy=False))
    if device.type == "cuda":
        buffer = buffer.pin_memory().to(device, non_blocking=True)
    return buffer.split([len(block) for block in blocks])
