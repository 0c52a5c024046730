"""Linear layers in int8 for the CPU: weights by output row once, inputs by token on the way.

    x = low + step * (c + 1/2)        per token: c is 7 bits, low its smallest value, step a 127th of its range
    w = scale * v                     per output: v is 8 bits
    y = step * (c . w) + (low + step / 2) * (sum of w) + bias

A token's codes depend on that token alone, so a text scores the same whatever shares its micro-batch; one range for the
whole batch, as torch's own dynamic layers take it, would not allow that. Seven bits, because processors without VNNI
add two products in 16 bits and would clip eight. Shapes: T tokens, E inputs, F outputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_STEPS = 127
_TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
    """In place of one ``nn.Linear``; takes and gives float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()  # [F, E]
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach().float()
        scale = (weight.abs().amax(dim=1) / 127).clamp_min(_TINY)  # [F]
        codes = (weight / scale[:, None]).round().to(torch.int8)
        self.weight_bytes = codes.numel()
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None)
        self.register_buffer("_scale", scale, persistent=False)
        self.register_buffer("_zeros", torch.zeros(len(weight), dtype=torch.long), persistent=False)  # [F]
        sums = codes.sum(dim=1) * scale
        self.register_buffer("_sums_and_bias", torch.stack((sums, bias)), persistent=False)  # [2, F]

    def forward(self, x: Tensor) -> Tensor:
        """``[..., E]`` to ``[..., F]``; a token with a NaN or an infinity gives NaN."""
        rows = x.flatten(0, -2)  # [T, E]
        low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)  # [T, 1]
        step = ((high - low) / _STEPS).clamp_min_(_TINY)
        codes = (rows - low).mul_(1 / step).to(torch.uint8)  # [T, E], cut off and not rounded: hence the half step
        product = torch.ops.onednn.qlinear_pointwise(
            codes, 1.0, 0, self._packed, self._scale, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )  # [T, F]
        offset = torch.cat((low + step / 2, torch.ones_like(low)), dim=1)  # [T, 2]
        return product.mul_(step).addmm_(offset, self._sums_and_bias).unflatten(0, x.shape[:-1])


def quantise_linears(model: nn.Module) -> None:
    """Replace every ``nn.Linear`` of the model, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Int8Linear(child))


def int8_bytes(model: nn.Module) -> int:
    return sum(module.weight_bytes for module in model.modules() if isinstance(module, Int8Linear))
