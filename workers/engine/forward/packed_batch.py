"""The one object that crosses layers: many sequences laid end to end on a single row, never padded.

Shapes: T tokens on the row, N pieces, G groups. A piece may *continue* an earlier one (its prefix): its positions go on
where the prefix ends and it attends to the prefix and to itself, so that items of one query share the query's tokens. A
prefix may continue another, and the first of such a chain may follow prefixes kept from earlier batches, which lie
behind the row: as keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.engine.forward.kept_prefix import KeptPrefix

Span = tuple[int, int]  # first row and number of rows


@dataclass(frozen=True, slots=True)
class Piece:
    token_ids: Sequence[int]
    prefix: int | None = None  # index of the piece that this one continues
    after: tuple[KeptPrefix, ...] = ()  # without ``prefix``: what ran in earlier batches and this one continues
    keep: KeptPrefix | None = None  # takes this piece's keys and values as they are computed
    attended: int | None = None  # so many first tokens are seen by all of the piece, the rest by none; None: all are
    token_types: Sequence[int] | None = None  # one per token, where the model takes them (which text of a pair)


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbours on the row with one length and one prefix: attention takes them in a single call, as views."""

    start: int
    count: int
    length: int
    prefix: tuple[Span, ...]  # the rows of all that they continue, in order
    prefix_length: int  # 0: no prefix
    attended: int  # of its own tokens


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
    attended_cpu: tuple[int, ...]  # N, how many of its own tokens a piece's tokens attend to
    max_length: int
    max_attended: int
    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    key_rows: Tensor | None  # row of every key a piece attends to, prefix first; None: all tokens, each piece its own
    kept: tuple[KeptPrefix, ...]  # in the order in which their keys lie behind the row
    keeps_cpu: tuple[tuple[int, KeptPrefix], ...]  # first row of a piece, and what takes its keys and values
    cu_lengths: Tensor  # [N + 1] int32, borders of the pieces as queries
    cu_attended: Tensor  # [N + 1] int32, borders of what they attend to
    token_types: Tensor | None  # [T]; None: all of type 0
    cursor: PoolingCursor

    @property
    def narrowed(self) -> bool:
        """Whether some tokens attend without being attended to."""
        return any(group.attended < group.length for group in self.groups_cpu)

    @property
    def lengths_cpu(self) -> tuple[int, ...]:
        return self.cursor.lengths_cpu


def pack(pieces: Sequence[Piece], *, device: torch.device, position_offset: int = 0) -> PackedBatch:
    """Lay the pieces end to end. Neighbours of equal length share an attention call: sort if order is free."""
    lengths = [len(piece.token_ids) for piece in pieces]
    borders = [0, *accumulate(lengths)]
    starts = borders[:-1]
    kept = tuple(dict.fromkeys(each for piece in pieces for each in piece.after))
    chains = _chains(pieces, starts, lengths, kept)
    prefix_lengths = [sum(count for _, count in chain) for chain in chains]
    own_keys = [n if piece.attended is None else piece.attended for n, piece in zip(lengths, pieces, strict=True)]
    attended = [keys + prefix for keys, prefix in zip(own_keys, prefix_lengths, strict=True)]
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
    if any(chains) or own_keys != lengths:
        blocks.append(_key_rows(starts, own_keys, chains))
    views = _to_device(blocks, device)
    optional = iter(views[6:])
    return PackedBatch(
        token_ids_cpu=token_ids,
        starts_cpu=tuple(starts),
        groups_cpu=tuple(_groups(starts, lengths, chains, own_keys)),
        attended_cpu=tuple(own_keys),
        max_length=max(lengths),
        max_attended=max(attended),
        token_ids=views[0],
        positions=views[1],
        cursor=PoolingCursor(tuple(lengths), views[2], views[3]),
        cu_lengths=views[4].to(torch.int32),
        cu_attended=views[5].to(torch.int32),
        token_types=next(optional) if typed else None,
        key_rows=next(optional, None),
        kept=kept,
        keeps_cpu=tuple((start, piece.keep) for start, piece in zip(starts, pieces, strict=True) if piece.keep),
    )


def _chains(
    pieces: Sequence[Piece], starts: list[int], lengths: list[int], kept: tuple[KeptPrefix, ...]
) -> list[tuple[Span, ...]]:
    """For each piece the rows of what it continues; a prefix precedes its pieces on the row."""
    borders = accumulate((each.length for each in kept), initial=sum(lengths))
    behind = {each: (start, each.length) for each, start in zip(kept, borders, strict=False)}
    chains: list[tuple[Span, ...]] = []
    for piece in pieces:
        if piece.prefix is None:
            chains.append(tuple(behind[each] for each in piece.after))
        else:
            chains.append((*chains[piece.prefix], (starts[piece.prefix], lengths[piece.prefix])))
    return chains


def _key_rows(starts: list[int], own_keys: list[int], chains: list[tuple[Span, ...]]) -> npt.NDArray[np.int64]:
    return np.concatenate(
        [
            np.arange(first, first + count)
            for start, keys, chain in zip(starts, own_keys, chains, strict=True)
            for first, count in (*chain, (start, keys))
        ]
    )


def _groups(starts: list[int], lengths: list[int], chains: list[tuple[Span, ...]], own_keys: list[int]) -> list[Group]:
    groups = []
    alike = groupby(range(len(starts)), key=lambda i: (lengths[i], chains[i], own_keys[i]))
    for (length, chain, keys), members in alike:
        indices = list(members)
        before = sum(count for _, count in chain)
        groups.append(Group(starts[indices[0]], len(indices), length, chain, before, keys))
    return groups


def _to_device(blocks: Sequence[npt.NDArray[np.int64]], device: torch.device) -> tuple[Tensor, ...]:
    """All integers in one buffer, copied once; the parts are views of it."""
    buffer = torch.from_numpy(np.concatenate(blocks).astype(np.int64, copy=False))
    if device.type == "cuda":
        buffer = buffer.pin_memory().to(device, non_blocking=True)
    return buffer.split([len(block) for block in blocks])
