"""Token vectors made smaller for keeping: half precision, or 8 bits and one scale per vector.

Documents are scored by the compressed vectors from the first time on, so that a score never depends on whether the
document was in a cache. Shapes: n tokens, E dimensions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.pooling.encoding import Encoding

CACHE_DTYPES = ("model", "float16", "int8")


def check_cache_dtype(name: str) -> None:
    if name not in CACHE_DTYPES:
        raise EngineError("unknown_cache_dtype", f"'{name}' is not a cache_dtype. Give {', '.join(CACHE_DTYPES)}.")


def compressed(encoding: Encoding, dtype: str) -> Encoding:
    """``dtype`` is one of ``CACHE_DTYPES``; anything but token vectors stays as it is."""
    vectors = encoding.tokens
    if vectors is None or dtype == "model":
        return encoding
    if dtype == "float16":
        return replace(encoding, tokens=vectors.to(torch.float16))
    scales = vectors.float().abs().amax(dim=-1) / 127  # [n]
    steps = vectors.float() / scales.clamp_min(torch.finfo(torch.float32).tiny)[:, None]  # [n, E]
    return replace(encoding, tokens=steps.round().to(torch.int8), token_scales=scales)


def token_vectors(encoding: Encoding) -> Tensor:
    """``[n, E]`` to compute with: as they are, or float32 where they were compressed to integers."""
    assert encoding.tokens is not None
    if encoding.token_scales is None:
        return encoding.tokens
    return encoding.tokens.float() * encoding.token_scales[:, None]
