"""What one process gives to the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Token numbers include special tokens."""

    device: str = "auto"  # for models whose own device is "auto": auto | cpu | cuda | cuda:N
    threads: int = 0  # torch's intra-operation threads; 0 leaves torch's own choice
    max_batch_tokens: int = 2048  # a CPU's GEMM is saturated well below; more only adds latency
    batch_seconds: float = 1.0  # a slow model's micro-batches are cut to about this, so that others get their turn
    background_batch_seconds: float = 0.5  # those of batch priority: whoever overtakes or cancels waits no longer
    max_batch_square: int = 2**20  # cap on the sum of length * attended length in one micro-batch
    document_cache_bytes: int = 2**30
    query_cache_bytes: int = 2**26
    prefix_cache_bytes: int = 2**28  # keys and values of what prompts begin with, beside their models; 0: none kept
    device_cache_bytes: int = 2**30  # documents kept in a GPU's memory too
    cache_folder: Path | None = None  # where document embeddings are kept over a restart; None: nowhere
    disk_cache_bytes: int = 2**33
    packed_cache_bytes: int = 2**30  # document lists packed to be ranked without their texts
    cache_dtype: str = "model"  # how token vectors of documents are kept and scored: model | float16 | int8
    reservation_bytes: int = 2**30  # query embeddings waiting for documents; over it no further request starts
    reservation_seconds: float = 600.0  # without a document scored in so long, they are given up
    preprocess_threads: int = 2  # per priority, so that a batch chunk never delays an interactive request's tokens
    max_waiting_requests: int = 1024  # per priority, everything submitted and not yet answered
    max_waiting_tokens: int = 8 * 2**20  # per priority, estimated from characters; a request alone is always let in
    conversion_folder: Path | None = None  # where GGUF files are kept as safetensors; needed for GGUF only
