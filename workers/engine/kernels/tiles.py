"""How MaxSim is dealt out to programs: tiles of up to ``block_q`` tokens of a query and one stretch of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_SHORTEST_PART = 256  # document tokens; reading fewer costs less than joining them


@dataclass(frozen=True, slots=True)
class Tiles:
    pairs: int  # P
    query_rows: int  # sum of m over the pairs
    whole: bool  # every tile is a whole pair, so nothing is joined
    table: Integers  # [W, 6] first query row, query rows, first document row, document rows, tokens before it, slot
    joins: Integers  # [pairs with tokens, 6] first slot, query blocks, document parts, query rows, pair, first match


def tile(
    query_lengths: Sequence[int],
    document_lengths: Sequence[int],
    pairs: tuple[Integers, Integers] | None,
    *,
    block_q: int,
    block_d: int,
    programs: int,
    rows_per_part: int | None,
    whole: bool,
) -> Tiles:
    """What each program does. Pairs without tokens on a side have no tile; the longest stretches run first.

    Without ``rows_per_part`` documents are cut where that many ``programs`` would otherwise not all be kept busy."""
    m_of, t_of = np.asarray(query_lengths, dtype=np.int64), np.asarray(document_lengths, dtype=np.int64)
    if pairs is None:
        pairs = np.repeat(np.arange(len(m_of)), len(t_of)), np.tile(np.arange(len(t_of)), len(m_of))
    query, document = pairs
    place = np.flatnonzero((m_of[query] > 0) & (t_of[document] > 0))  # [p]
    match_start = (np.cumsum(m_of[query]) - m_of[query])[place]
    total = int(m_of[query].sum())
    query, document = query[place], document[place]
    m, t = m_of[query], t_of[document]
    blocks = -(-m // block_q)
    if rows_per_part is None:
        rows_per_part = max(_SHORTEST_PART, -(-int((t * blocks).sum()) // programs))
    rows_per_part = -(-rows_per_part // block_d) * block_d
    parts = -(-t // rows_per_part)
    first_slot = np.cumsum(blocks * parts) - blocks * parts
    pair = np.repeat(np.arange(len(place)), blocks * parts)  # [W]
    slot = np.arange(len(pair))
    block, part = np.divmod(slot - first_slot[pair], parts[pair])
    query_offset, document_offset = block * block_q, part * rows_per_part
    rows = np.minimum(rows_per_part, t[pair] - document_offset)
    whole = whole and len(pair) == len(place)
    table = np.stack(
        [
            (np.cumsum(m_of) - m_of)[query[pair]] + query_offset,
            np.minimum(block_q, m[pair] - query_offset),
            (np.cumsum(t_of) - t_of)[document[pair]] + document_offset,
            rows,
            document_offset,
            place[pair] if whole else slot,
        ],
        axis=1,
    )
    joins = np.stack([first_slot, blocks, parts, m, place, match_start], axis=1)
    return Tiles(len(pairs[0]), total, whole, table[np.argsort(-rows, kind="stable")], joins)
