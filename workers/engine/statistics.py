"""What the engine tells about itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    bytes: int
    entries: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """A snapshot; counters grow from the engine's start."""

    waiting_requests: int  # in the queue, with work not yet started
    waiting_tokens: int
    running_sequences: int  # in the micro-batch on the device now
    requests_in_flight: int  # submitted and not yet answered
    reserved_bytes: int  # query embeddings held for documents still to come
    micro_batches: int
    sequences: int
    tokens: int
    dropped: int  # cancelled or past their deadline before they finished
    overloaded: int
    failed_requests: int
    truncations: int  # texts cut
    non_finite: int  # pairs without a finite score, after the retry
    float32_retries: int
    maxsim_fallbacks: int
    label_fallbacks: int
    out_of_memory: int
    document_cache: CacheStatistics
    query_cache: CacheStatistics
    prefix_cache: CacheStatistics  # looked up for every prefix of every micro-batch
