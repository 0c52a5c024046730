"""Entries in memory within a byte budget; the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from workers.engine.statistics import CacheStatistics


class Key(Protocol):
    @property
    def owner(self) -> str: ...


class Sized(Protocol):
    @property
    def bytes(self) -> int: ...


K = TypeVar("K", bound=Key)
V = TypeVar("V", bound=Sized)


class ByteBudgetCache(Generic[K, V]):
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry

    @property
    def budget_bytes(self) -> int:
        return self._budget

    def put(self, key: K, entry: V) -> None:
        """Keep an entry. One larger than the whole budget is not kept."""
        if entry.bytes > self._budget:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._bytes += entry.bytes - (replaced.bytes if replaced else 0)
            self._entries[key] = entry
            while self._bytes > self._budget:
                _, evicted = self._entries.popitem(last=False)
                self._bytes -= evicted.bytes
                self._evictions += 1

    def remove(self, keys: Iterable[K]) -> None:
        with self._lock:
            for key in keys:
                if (entry := self._entries.pop(key, None)) is not None:
                    self._bytes -= entry.bytes

    def clear(self, owner: str) -> None:
        with self._lock:
            for key in [key for key in self._entries if key.owner == owner]:
                self._bytes -= self._entries.pop(key).bytes

    def statistics(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(self._bytes, len(self._entries), self._hits, self._misses, self._evictions)
