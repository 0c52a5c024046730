"""Embeddings of texts seen before: on the device, in host memory, on the disk. Each tier has a byte budget, and the
least recently used go first. In memory and on the device an encoder may have a smaller one of its own (``limit``),
within which its own least recently used go first.

What is found in a lower tier moves up; what an upper tier lets go is still in the lower ones. A tier that is not
there (no GPU, no folder) is None."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch

from workers.engine.caches.byte_budget import ByteBudgetCache
from workers.engine.caches.cached_encoding import CachedEncoding, CacheKey, Owner, content_digest, packed_key
from workers.engine.caches.compression import compressed
from workers.engine.caches.disk_tier import DiskTier
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.packed_documents import PackedDocuments
from workers.engine.statistics import CacheStatistics, DocumentShare

__all__ = ["CacheKey", "CachedEncoding", "EmbeddingCache", "MemoryTier", "content_digest"]


class MemoryTier(ByteBudgetCache[CacheKey, CachedEncoding]):
    """Encodings of texts, on one device or in host memory."""


class PackedTier(ByteBudgetCache[CacheKey, PackedDocuments]):
    """Lists of documents, under a budget of their own: no other list's encodings push them out one by one."""


class EmbeddingCache:
    """``dtype``, one of ``CACHE_DTYPES``, is how token vectors are kept in every tier."""

    def __init__(
        self,
        budget_bytes: int,
        *,
        dtype: str = "model",
        on_device: MemoryTier | None = None,
        on_disk: DiskTier | None = None,
        packed_bytes: int = 0,
    ) -> None:
        self.dtype = dtype
        self.packed = PackedTier(packed_bytes)
        self._host = MemoryTier(budget_bytes)
        self._device = on_device
        self._disk = on_disk

    def get(self, key: CacheKey, device: torch.device | None = None) -> CachedEncoding | None:
        """``device`` is the model's if it has a memory of its own, else None. May read the disk."""
        if device is not None and self._device is not None:
            entry = self._device.get(key)
            if entry is not None:
                return entry
        entry = self._host.get(key)
        if entry is None and self._disk is not None:
            entry = self._disk.get(key)
            if entry is not None:
                self._host.put(key, entry)
        if entry is not None and device is not None and self._device is not None:
            entry = entry.to(device)
            self._device.put(key, entry)
        return entry

    def put(self, key: CacheKey, entry: CachedEncoding, device: torch.device | None = None) -> None:
        """``entry`` as the model made it, see ``compress``; it never waits for the disk. Of an encoder that may keep
        nothing, nothing is written there either."""
        if self._host.limit_of(key.owner) == 0:
            return
        if device is not None and self._device is not None:
            self._device.put(key, entry)
        in_memory = entry.to(torch.device("cpu"))
        self._host.put(key, in_memory)
        if self._disk is not None:
            self._disk.put(key, in_memory)

    def compress(self, encoding: Encoding) -> Encoding:
        return compressed(encoding, self.dtype)

    def forget(self, key: CacheKey, texts: Iterable[str], *, packed: str = "") -> None:
        """Let go of what is kept of ``texts`` in every tier, the disk included, and of the list ``packed``. ``key``
        names all but the text, as ``EncodingOutput`` tells it."""
        keys = [key._replace(digest=content_digest(text, "")) for text in texts]
        for tier in (self._device, self._host, self._disk):
            if tier is not None:
                tier.remove(keys)
        self.packed.remove([packed_key(key, packed)])

    def settle(self) -> None:
        """Wait for the disk: what was put is on it, as far as there is room, and what was let go is not."""
        if self._disk is not None:
            self._disk.flush()

    def limit(self, owner: Owner, budget_bytes: int | None) -> None:
        """Bound what an encoder keeps in memory, and as much again on the device; None: by the tiers' budgets alone.
        What it keeps beyond that goes at once. The disk, whose files hold all encoders' entries, has one budget."""
        for tier in self._in_memory():
            tier.limit(owner, budget_bytes)

    def share(self, owner: Owner) -> DocumentShare:
        on_device = self._device.bytes_of(owner) if self._device is not None else 0
        return DocumentShare(self._host.bytes_of(owner), on_device, self._host.limit_of(owner))

    def clear(self, owner: Hashable) -> None:
        """Forget an encoder's entries in memory. Those on the disk stay: content cannot be stale."""
        for tier in self._in_memory():
            tier.clear(owner)
        self.packed.clear(owner)

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def statistics(self) -> CacheStatistics:
        """Of the host's memory; ``device_statistics`` and ``disk_statistics`` tell of the other tiers."""
        return self._host.statistics()

    def device_statistics(self) -> CacheStatistics:
        return CacheStatistics() if self._device is None else self._device.statistics()

    def disk_statistics(self) -> CacheStatistics:
        return CacheStatistics() if self._disk is None else self._disk.statistics()

    def _in_memory(self) -> list[MemoryTier]:
        return [tier for tier in (self._device, self._host) if tier is not None]
