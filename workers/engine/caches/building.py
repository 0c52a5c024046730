"""Which caches an engine has: one for queries, one for documents, each over the tiers that its configuration allows."""

from __future__ import annotations

from typing import Any

import torch

from workers.engine.caches.compression import check_cache_dtype
from workers.engine.caches.disk_tier import DiskTier
from workers.engine.caches.embedding_cache import EmbeddingCache, MemoryTier
from workers.engine.config import EngineConfig
from workers.engine.errors import EngineError
from workers.engine.forward.kept_prefix import PrefixCache
from workers.engine.role import Role

Caches = dict[Role, EmbeddingCache]


def build_caches(config: EngineConfig) -> Caches:
    check_cache_dtype(config.cache_dtype)
    on_device = MemoryTier(config.device_cache_bytes) if torch.cuda.is_available() else None
    return {
        Role.QUERY: EmbeddingCache(config.query_cache_bytes),
        Role.DOCUMENT: EmbeddingCache(
            config.document_cache_bytes,
            dtype=config.cache_dtype,
            on_device=on_device,
            on_disk=_disk_tier(config),
            packed_bytes=config.packed_cache_bytes,
        ),
    }


def cache_statistics(caches: Caches, prefixes: PrefixCache) -> dict[str, Any]:
    """By the names of ``EngineStatistics``."""
    documents = caches[Role.DOCUMENT]
    return {
        "document_cache": documents.statistics(),
        "query_cache": caches[Role.QUERY].statistics(),
        "prefix_cache": prefixes.statistics(),
        "device_cache": documents.device_statistics(),
        "disk_cache": documents.disk_statistics(),
    }


def _disk_tier(config: EngineConfig) -> DiskTier | None:
    if config.cache_folder is None or not config.disk_cache_bytes:
        return None
    try:
        return DiskTier(config.cache_folder, config.disk_cache_bytes)
    except OSError as error:
        raise EngineError(
            "cache_folder_unusable", f"{config.cache_folder} cannot hold the disk cache ({error}). Give another folder."
        ) from error
