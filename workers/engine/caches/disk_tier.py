"""The last place where embeddings are looked for: files that survive a restart. Written behind the back of whoever
encodes; read by the threads that prepare requests, so the runner thread never waits for a disk."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from workers.engine.caches.cached_encoding import CachedEncoding, CacheKey
from workers.engine.caches.segment_files import SegmentFiles
from workers.engine.pooling.encoding import Encoding, SparseVector
from workers.engine.statistics import CacheStatistics

logger = logging.getLogger(__name__)

_RULES = 1  # grows with every change to how texts become vectors: what older rules made is not found any more
_PENDING_BYTES = 2**27  # waiting for the disk; what comes on top is not kept there


class DiskTier:
    """Keys hold what decides the vectors and nothing of this process: neither a model's name nor its generation."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._files = SegmentFiles(folder, budget_bytes)
        self._queue: queue.SimpleQueue[tuple[bytes, CachedEncoding] | frozenset[bytes] | None] = queue.SimpleQueue()
        self._pending: dict[bytes, int] = {}  # bytes by key
        self._pending_bytes = self._dropped = self._removals = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="disk-cache", daemon=True)
        self._thread.start()

    def get(self, key: CacheKey) -> CachedEncoding | None:
        content = self._files.get(_address(key))
        return None if content is None else _read(content)

    def put(self, key: CacheKey, entry: CachedEncoding) -> None:
        """Returns at once; not kept when the disk is far behind."""
        address = _address(key)
        with self._changed:
            if address in self._pending or address in self._files:
                return
            if self._pending_bytes + entry.bytes > _PENDING_BYTES:
                self._dropped += 1
                return
            self._pending[address] = entry.bytes
            self._pending_bytes += entry.bytes
            self._queue.put((address, entry))

    def remove(self, keys: Iterable[CacheKey]) -> None:
        """Returns at once; ``flush`` waits for it."""
        with self._changed:
            self._removals += 1
            self._queue.put(frozenset(_address(key) for key in keys))

    def flush(self) -> None:
        """Wait until all that was put is in the files, and what was removed is not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending and not self._removals)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._files.close()

    def statistics(self) -> CacheStatistics:
        found = self._files.statistics()
        return CacheStatistics(
            found.bytes, found.entries, found.hits, found.misses, found.evictions, found.failures + self._dropped
        )

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if isinstance(item, frozenset):
                    self._files.remove(item)
                else:
                    self._files.put(item[0], _content(item[1]))
            except Exception:  # one entry less on the disk; the next ones must still get there
                logger.exception("An embedding could not be written to the disk cache")
            with self._changed:
                if isinstance(item, frozenset):
                    self._removals -= 1
                else:
                    self._pending_bytes -= self._pending.pop(item[0])
                self._changed.notify_all()


def _address(key: CacheKey) -> bytes:
    named = f"{_RULES}\0{key.identity}\0{key.role.value}\0{','.join(sorted(key.parts))}\0{key.limit}\0".encode()
    return hashlib.blake2b(named + key.digest, digest_size=16).digest()


def _content(entry: CachedEncoding) -> bytes:
    encoding = entry.encoding
    tensors: dict[str, Tensor] = {"counts": torch.tensor([entry.tokens, entry.truncated])}
    for name in ("dense", "tokens", "token_scales", "classes", "token_classes"):
        if (value := getattr(encoding, name)) is not None:
            tensors[name] = value.contiguous()
    if encoding.sparse is not None:
        tensors["sparse_ids"], tensors["sparse_weights"] = (part.contiguous() for part in encoding.sparse)
    if encoding.kept_token_ids is not None:
        tensors["kept_token_ids"] = torch.from_numpy(np.ascontiguousarray(encoding.kept_token_ids))
    return safetensors.torch.save(tensors)


def _read(content: bytes) -> CachedEncoding | None:
    try:
        tensors = safetensors.torch.load(content)
        tokens, truncated = tensors.pop("counts").tolist()
    except (SafetensorError, KeyError, ValueError):  # whole, but not as we write them
        return None
    ids, weights = tensors.pop("sparse_ids", None), tensors.pop("sparse_weights", None)
    sparse = SparseVector(ids, weights) if ids is not None and weights is not None else None
    kept = tensors.pop("kept_token_ids", None)
    return CachedEncoding(
        Encoding(sparse=sparse, kept_token_ids=None if kept is None else kept.numpy(), **tensors), tokens, truncated
    )
