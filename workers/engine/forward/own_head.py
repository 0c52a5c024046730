"""A checkpoint's head over hidden states that are already there: transformers' own code of the whole model, with a
stand-in where its body was.

Only for heads that look at every position by itself: the row holds many texts.

Shapes: T tokens on the row, E hidden, K outputs of the head."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from workers.engine.errors import EngineError
from workers.engine.forward.steady_rows import fill_rows


class PositionwiseHead:
    """Shares the model's weights; the model itself is left as it is."""

    def __init__(self, model: PreTrainedModel) -> None:
        prefix = model.base_model_prefix
        if prefix not in model._modules:
            raise EngineError(
                "unsupported_head",
                f"'{model.config.model_type}' does not keep its body in one module, so its head cannot be run apart.",
            )
        self._module = copy.copy(model)
        self._module._modules = {**model._modules, prefix: _Given()}
        self._dtype = model.dtype

    def __call__(self, hidden: Tensor) -> Tensor:
        """``[T, E]`` to the head's ``[T, K]``; computed in the dtype of ``hidden``, with widened weights if needed."""
        inputs: dict[str, Any] = {"inputs_embeds": fill_rows(hidden)[None]}
        with torch.inference_mode():
            if hidden.dtype == self._dtype:
                logits: Tensor = self._module(**inputs).logits
            else:
                widened = {
                    name: tensor.to(hidden.dtype)
                    for name, tensor in self._module.state_dict().items()
                    if tensor.is_floating_point()
                }
                logits = functional_call(self._module, widened, kwargs=inputs, tie_weights=False).logits
        return logits[0, : len(hidden)]  # [T, K]


class _Given(nn.Module):
    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutput:
        given: Any = inputs_embeds
        return BaseModelOutput(last_hidden_state=given)
