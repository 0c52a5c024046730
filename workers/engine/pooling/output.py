"""The answer to a pooling request: per text what it became, in the order submitted.

Shapes: E dimensions, n tokens, k token ids, K labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.caches.compression import token_vectors
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelInfo
from workers.engine.outputs import timings_of
from workers.engine.pooling.encoding import Encoding
from workers.engine.sequence import PoolingResults, Work
from workers.engine.types import ItemStatus, PooledText, PoolingOptions, PoolingOutput

_NON_FINITE = "non_finite_value"
_UNIT = 1e-2  # how far from one the length of a normalised vector in half precision may be


def assemble_pooling(
    work: Work, info: ModelInfo, labels: tuple[str, ...], activation: Callable[[Tensor], Tensor] | None
) -> PoolingOutput:
    """A text with a value that is no finite number fails by itself."""
    request, results = work.pooling, work.results
    data = [_pooled_text(results, index, request.options, activation) for index in range(request.input_count)]
    return PoolingOutput(
        data=tuple(data),
        errors={i: _NON_FINITE for i, text in enumerate(data) if text.status is ItemStatus.FAILED},
        labels=labels,
        prompt_tokens=results.tokens,
        timings=timings_of(work),
        backend=info.device.split(":")[0],
        dtype=info.dtype,
        revision=info.revision,
    )


def _pooled_text(
    results: PoolingResults, index: int, options: PoolingOptions, activation: Callable[[Tensor], Tensor] | None
) -> PooledText:
    sequence = results.sequences.get(index)
    if sequence is None or sequence.encoding is None:
        return PooledText(ItemStatus.EMPTY)
    fields = _fields(sequence.encoding, options, activation)
    if not all(_is_finite(value) for value in fields.values()):
        return PooledText(ItemStatus.FAILED, truncated_tokens=sequence.truncated)
    kept = sequence.encoding.kept_token_ids
    return PooledText(
        ItemStatus.TRUNCATED if sequence.truncated else ItemStatus.OK,
        token_ids=() if kept is None else tuple(int(i) for i in kept),
        truncated_tokens=sequence.truncated,
        **fields,
    )


def _fields(
    encoding: Encoding, options: PoolingOptions, activation: Callable[[Tensor], Tensor] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("classes", "token_classes"):
        logits: Tensor | None = getattr(encoding, name)
        if logits is not None:
            wanted = activation if options.use_activation else None
            found[name] = _numbers(logits if wanted is None else wanted(logits.float()))
    if encoding.dense is not None:
        found["vector"] = _numbers(_shortened(encoding.dense, options))
    if encoding.tokens is not None:
        found["token_vectors"] = _numbers(_shortened(token_vectors(encoding), options))
    if encoding.sparse is not None:
        found["sparse"] = (encoding.sparse.token_ids.cpu().numpy(), _numbers(encoding.sparse.weights))
    return found


def _shortened(vectors: Tensor, options: PoolingOptions) -> Tensor:
    """The first so many dimensions, of length one if the whole is or if it is asked for."""
    width, wanted = vectors.shape[-1], options.dimensions
    if wanted is not None and not 1 <= wanted <= width:
        raise EngineError(
            "bad_dimensions", f"The vectors have {width} dimensions, {wanted} were asked for. Give 1 to {width}."
        )
    whole = vectors.float()
    normalize = options.normalize
    if normalize is None:
        normalize = wanted is not None and bool(((whole.norm(dim=-1) - 1).abs() < _UNIT).all())
    return F.normalize(whole[..., :wanted], dim=-1) if normalize else whole[..., :wanted]


def _numbers(tensor: Tensor) -> npt.NDArray[np.float32]:
    return tensor.to(device="cpu", dtype=torch.float32).numpy()


def _is_finite(value: npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in (value if isinstance(value, tuple) else (value,)))
