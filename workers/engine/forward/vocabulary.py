"""The sum over a whole vocabulary that turns a logit into a log-probability. One function; the device decides how it
runs.

Shapes: n rows, E hidden, V vocabulary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from workers.engine import kernels
from workers.engine.errors import EngineError
from workers.engine.loading.architectures import final_softcap

_CHUNK = 2**14  # rows of the head at a time: [n, V] in float32 never exists


def vocabulary_logsumexp(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float | None
) -> tuple[Tensor, str | None]:
    """``hidden [n, E]``, ``weight [V, E]``, ``bias [V]`` to float32 ``[n]``, and why if not as the device wanted it.

    Products in the dtype of ``hidden``, sums in float32. The fused kernel on CUDA; without it, chunk by chunk.
    """
    reason = None
    if kernels.available(hidden, weight):
        from workers.engine.kernels import label_logprobs as kernel

        try:
            return kernel.vocabulary_logsumexp(hidden, weight, bias, softcap), None
        except kernels.KernelError as error:
            reason = f"The vocabulary was summed chunk by chunk: {error}"
    return _by_chunks(hidden, weight, bias, softcap), reason


def cap_logits(logits: Tensor, softcap: float | None) -> Tensor:
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def check_head(model: PreTrainedModel, token_ids: Tensor) -> None:
    """Labels are rows of the output embedding; refuse a model that does more to its logits. ``token_ids [1, T]``."""
    with torch.inference_mode():
        hidden = model.base_model(token_ids, use_cache=False)[0]  # [1, T, E]
        plain = cap_logits(model.get_output_embeddings()(hidden).float(), final_softcap(model.config))  # [1, T, V]
        own = model(token_ids, use_cache=False).logits.float()
    if not torch.allclose(plain, own, rtol=1e-2, atol=1e-2):
        raise EngineError(
            "unsupported_head",
            f"'{model.config.model_type}' changes its logits after the output embedding by more than a soft cap, "
            "which label scoring does not reproduce. Use another checkpoint.",
        )


def _by_chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float | None) -> Tensor:
    parts = []
    for start in range(0, len(weight), _CHUNK):
        rows = slice(start, start + _CHUNK)
        part = None if bias is None else bias[rows].to(hidden.dtype)
        logits = F.linear(hidden, weight[rows].to(hidden.dtype), part)  # [n, v]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        parts.append(cap_logits(logits, softcap).logsumexp(dim=-1))
    return torch.stack(parts, dim=-1).logsumexp(dim=-1)
