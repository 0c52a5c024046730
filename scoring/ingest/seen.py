"""Which keys a file has shown so far, small enough to know millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Final

FIRST_SLOTS: Final = 1 << 12
HASH_BITS: Final = (1 << 64) - 1


class SeenKeys:
    """64-bit hashes in one flat table with open addressing: 12 to 24 bytes a key, where a ``set`` takes about 100."""

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 * FIRST_SLOTS))
        self._count = 0

    def add(self, key: Hashable) -> bool:
        """Remember ``key``; False if it was there."""
        digest = hash(key) & HASH_BITS or 1  # 0 marks a free slot
        slot = self._slot(digest)
        if self._table[slot]:
            return False
        self._table[slot] = digest
        self._count += 1
        if 3 * self._count > 2 * len(self._table):
            self._grow()
        return True

    def has(self, key: Hashable) -> bool:
        return bool(self._table[self._slot(hash(key) & HASH_BITS or 1)])

    def _slot(self, digest: int) -> int:
        """Where ``digest`` is, or would be put."""
        table, mask = self._table, len(self._table) - 1
        slot = digest & mask
        while (found := table[slot]) and found != digest:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        before = self._table
        self._table = array("Q", bytes(16 * len(before)))
        for digest in before:
            if digest:
                self._table[self._slot(digest)] = digest
