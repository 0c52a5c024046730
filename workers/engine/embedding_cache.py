"""Embeddings of texts seen before, in host memory, within a byte budget; the least recently used goes first.

A key names the content, never a document's id: the same text in two sets is one entry, an edited text is another.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

from workers.engine.encoding import Encoding, Part
from workers.engine.role import Role
from workers.engine.statistics import CacheStatistics


@dataclass(frozen=True, slots=True)
class CacheKey:
    model: str
    generation: int  # of the weights: a reload makes every older key unreachable
    role: Role
    parts: frozenset[Part]
    limit: int  # tokens of the text that were let in
    digest: bytes


@dataclass(frozen=True, slots=True)
class CachedEncoding:
    encoding: Encoding  # on the CPU
    tokens: int
    truncated: int

    @property
    def bytes(self) -> int:
        return self.encoding.bytes


def content_digest(text: str, instruction: str) -> bytes:
    return hashlib.blake2b(f"{instruction}\0{text}".encode(), digest_size=16).digest()


class EmbeddingCache:
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._entries: OrderedDict[CacheKey, CachedEncoding] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: CacheKey) -> CachedEncoding | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry

    def put(self, key: CacheKey, entry: CachedEncoding) -> None:
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

    def clear(self, model: str) -> None:
        with self._lock:
            for key in [key for key in self._entries if key.model == model]:
                self._bytes -= self._entries.pop(key).bytes

    def statistics(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(self._bytes, len(self._entries), self._hits, self._misses, self._evictions)
