"""Entries in memory within a byte budget, and within one of their owner's where it has one; the least recently used go
first. Every step takes the same time however many entries there are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from workers.engine.statistics import CacheStatistics


class Key(Protocol):
    @property
    def owner(self) -> Hashable: ...


class Sized(Protocol):
    @property
    def bytes(self) -> int: ...


K = TypeVar("K", bound=Key)
V = TypeVar("V", bound=Sized)


@dataclass(eq=False, slots=True)
class _Share(Generic[K]):
    """What one owner has of the cache."""

    budget: int | None = None
    bytes: int = 0
    keys: OrderedDict[K, None] = field(default_factory=OrderedDict)  # the least recently used first

    @property
    def is_over(self) -> bool:
        return self.budget is not None and self.bytes > self.budget


class ByteBudgetCache(Generic[K, V]):
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        # Each with its owner's share; of all owners, the least recently used first.
        self._entries: OrderedDict[K, tuple[V, _Share[K]]] = OrderedDict()
        self._shares: dict[Hashable, _Share[K]] = {}
        self._bytes = self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
                return None
            entry, share = found
            self._hits += 1
            self._entries.move_to_end(key)
            share.keys.move_to_end(key)
            return entry

    @property
    def budget_bytes(self) -> int:
        return self._budget

    def put(self, key: K, entry: V) -> None:
        """Keep an entry. One larger than the whole budget, or than its owner's, is not kept."""
        if entry.bytes > self._budget:
            return
        with self._lock:
            share = self._share(key.owner)
            if share.budget is not None and entry.bytes > share.budget:
                return
            if key in self._entries:
                self._drop(key)
            self._entries[key] = entry, share
            share.keys[key] = None
            self._bytes += entry.bytes
            share.bytes += entry.bytes
            self._fit(share)
            while self._bytes > self._budget:
                self._evict(next(iter(self._entries)))

    def limit(self, owner: Hashable, budget_bytes: int | None) -> None:
        """Bound what ``owner`` keeps, from now on; None: by the whole budget alone. Entries of others stay."""
        with self._lock:
            share = self._share(owner)
            share.budget = budget_bytes
            self._fit(share)
            self._forget_empty(owner)

    def limit_of(self, owner: Hashable) -> int | None:
        with self._lock:
            return self._shares[owner].budget if owner in self._shares else None

    def bytes_of(self, owner: Hashable) -> int:
        with self._lock:
            return self._shares[owner].bytes if owner in self._shares else 0

    def remove(self, keys: Iterable[K]) -> None:
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self._drop(key)

    def clear(self, owner: Hashable) -> None:
        """Forget the owner's entries, not its limit."""
        with self._lock:
            for key in list(self._share(owner).keys):
                self._drop(key)
            self._forget_empty(owner)

    def statistics(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(self._bytes, len(self._entries), self._hits, self._misses, self._evictions)

    # From here on: under the lock.

    def _share(self, owner: Hashable) -> _Share[K]:
        return self._shares.get(owner) or self._shares.setdefault(owner, _Share())

    def _fit(self, share: _Share[K]) -> None:
        while share.is_over:
            self._evict(next(iter(share.keys)))

    def _evict(self, key: K) -> None:
        self._drop(key)
        self._evictions += 1

    def _drop(self, key: K) -> None:
        entry, share = self._entries.pop(key)
        del share.keys[key]
        self._bytes -= entry.bytes
        share.bytes -= entry.bytes

    def _forget_empty(self, owner: Hashable) -> None:
        share = self._shares[owner]
        if share.budget is None and not share.keys:
            del self._shares[owner]
