"""What the engine tells about itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """One tier of a cache."""

    bytes: int = 0
    entries: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    failures: int = 0  # on the disk: entries that were not written, or found damaged


@dataclass(frozen=True, slots=True)
class DocumentShare:
    """What one encoder keeps of documents now. Models of one encoder have one share."""

    bytes: int  # in the host's memory
    device_bytes: int
    budget_bytes: int | None  # of either; None: the worker's alone


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """A snapshot; counters grow from the engine's start."""

    waiting_requests: int  # in the queue, with work not yet started
    waiting_tokens: int
    running_sequences: int  # in the micro-batch on the device now
    requests_in_flight: int  # submitted and not yet answered
    reservations: int  # requests whose query embeddings are held for documents still to come
    reserved_bytes: int
    micro_batches: int
    sequences: int
    tokens: int
    expired_reservations: int
    dropped: int  # cancelled or past their deadline before they finished
    overloaded: int
    failed_requests: int
    truncations: int  # texts cut
    non_finite: int  # pairs without a finite score, after the retry
    float32_retries: int
    maxsim_fallbacks: int
    label_fallbacks: int
    out_of_memory: int
    document_cache: CacheStatistics  # in the host's memory, as is the next
    query_cache: CacheStatistics
    prefix_cache: CacheStatistics  # looked up for every prefix of every micro-batch
    device_cache: CacheStatistics  # documents
    disk_cache: CacheStatistics  # documents


# The fields that are counters: they only grow.
COUNTED = (
    "micro_batches",
    "sequences",
    "tokens",
    "expired_reservations",
    "dropped",
    "overloaded",
    "failed_requests",
    "truncations",
    "non_finite",
    "float32_retries",
    "maxsim_fallbacks",
    "label_fallbacks",
    "out_of_memory",
)
