"""One forward pass: packed where the model was proven to keep its pieces apart, padded and length-sorted where not.

Shapes: T tokens on the row, T' with those that fill it up, N pieces, E hidden.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from workers.engine.errors import EngineError
from workers.engine.forward.attention import PACKED_ATTENTION
from workers.engine.forward.kept_prefix import KeptPrefix
from workers.engine.forward.packed_batch import PackedBatch, Piece, pack
from workers.engine.forward.steady_rows import BLOCK, filled
from workers.engine.loading.architectures import position_limit, position_offset

_WASTE = 1.25  # a padded batch ends where the longest piece would exceed the shortest by more than this
# Another piece leaking in moves hidden states by some per cent at least; rounding stays far below (relative error of
# the row).
_PROBE_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}


class ModelRunner:
    """Holds the body of a checkpoint (no head) and runs it. ``execution`` is "packed" or "padded"; ``keeps_prefixes``:
    packed, causal, and nothing but attention mixes tokens, so that kept keys and values stand for a prefix."""

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        self.model = model
        self.device = device
        self.dtype = model.dtype
        self.execution = "padded"
        self.keeps_prefixes = False
        self._offset = position_offset(model.config)
        self._position_limit = position_limit(model.config)
        self._pad_id = int(getattr(model.config, "pad_token_id", None) or 0)
        self._parameters = inspect.signature(model.forward).parameters.keys()

    def choose_execution(self, samples: list[list[int]], *, causal: bool) -> None:
        """Run the samples alone in the model's own way and packed in ours; packed only if both agree."""
        if not ("position_ids" in self._parameters and self.model.is_backend_compatible()) or _mixes(self.model):
            return
        own_attention = self.model.config._attn_implementation
        pieces = [Piece(sample) for sample in sorted(samples, key=len)]
        expected = [self._padded(self.pack([piece])) for piece in pieces]
        if causal:
            prefix = len(pieces) - 1
            for item in (pieces[0], pieces[1]):
                whole = self._padded(self.pack([Piece([*pieces[prefix].token_ids, *item.token_ids])]))
                expected.append(whole[len(pieces[prefix].token_ids) :])
                pieces.append(Piece(item.token_ids, prefix=prefix))
        self.model.set_attn_implementation(PACKED_ATTENTION)
        self.execution = "packed"
        if not self._agrees(pieces, torch.cat(expected)):
            self.model.set_attn_implementation(own_attention)
            self.execution = "padded"
        elif causal:
            kept = KeptPrefix(len(pieces[prefix].token_ids))
            keeping = [Piece(pieces[prefix].token_ids, keep=kept)]
            continuing = [Piece(piece.token_ids, after=(kept,)) for piece in pieces[-2:]]
            self.keeps_prefixes = self._agrees(keeping, expected[prefix]) and self._agrees(
                continuing, torch.cat(expected[-2:])
            )

    def _agrees(self, pieces: list[Piece], expected: Tensor) -> bool:
        """Whether the pieces run packed give the states ``[T, E]`` that the model gave in its own way."""
        try:
            packed = self._packed(self.pack(pieces))
        except EngineError:  # attention with something that packing cannot honour, such as learned sinks
            return False
        error = (packed.float() - expected.float()).norm() / expected.float().norm()
        return bool(error < _PROBE_TOLERANCE[self.dtype])

    def pack(self, pieces: list[Piece]) -> PackedBatch:
        return pack(pieces, device=self.device, position_offset=self._offset)

    def forward(self, batch: PackedBatch, *, in_float32: bool = False) -> Tensor:
        """Last hidden states, ``[T, E]`` in the order of the row; ``in_float32`` computes with widened weights."""
        run = self._packed if self.execution == "packed" else self._padded
        return run(batch, in_float32=in_float32)

    def _packed(self, batch: PackedBatch, *, in_float32: bool = False) -> Tensor:
        count = len(batch.token_ids)
        behind = (0, filled(count, self.device) - count)  # rows that are no piece's
        inputs = {
            "input_ids": F.pad(batch.token_ids, behind, value=self._pad_id)[None],  # [1, T']
            "position_ids": F.pad(batch.positions, behind, value=self._offset)[None],  # [1, T']
            "packed_batch": batch,
        }
        if batch.token_types is not None:
            inputs["token_type_ids"] = F.pad(batch.token_types, behind)[None]  # [1, T']
        return self._call(inputs, in_float32)[0, :count]  # [T, E]

    def _padded(self, batch: PackedBatch, *, in_float32: bool = False) -> Tensor:
        rows: dict[int, Tensor] = {}
        for members, length in self._paddings(batch.lengths_cpu):
            token_ids = torch.full((len(members), length), self._pad_id)
            mask = torch.zeros((len(members), length), dtype=torch.long)
            for row, i in enumerate(members):
                start, count = batch.starts_cpu[i], batch.lengths_cpu[i]
                token_ids[row, :count] = torch.from_numpy(batch.token_ids_cpu[start : start + count])
                mask[row, : batch.attended_cpu[i]] = 1
            # Without position ids: padded on the right, every model derives its own, which also makes this the probe's
            # reference.
            inputs = {"input_ids": token_ids.to(self.device), "attention_mask": mask.to(self.device)}
            if batch.token_types is not None:
                types = torch.zeros_like(inputs["input_ids"])
                for row, i in enumerate(members):
                    start, count = batch.starts_cpu[i], batch.lengths_cpu[i]
                    types[row, :count] = batch.token_types[start : start + count]
                inputs["token_type_ids"] = types  # [n, L]
            hidden = self._call(inputs, in_float32)  # [n, L, E]
            rows |= {i: hidden[row, : batch.lengths_cpu[i]] for row, i in enumerate(members)}
        return torch.cat([rows[i] for i in range(len(rows))])  # [T, E]

    def _paddings(self, lengths: tuple[int, ...]) -> Iterator[tuple[list[int], int]]:
        """Which pieces are padded to what length; on the CPU a piece's own length alone decides that."""
        if self.device.type != "cpu":
            for members in _similar_lengths(lengths):
                yield members, max(lengths[i] for i in members)
            return
        padded = [max(n, min(-(-n // BLOCK) * BLOCK, self._position_limit or math.inf)) for n in lengths]
        for length in sorted(set(padded)):
            yield [i for i, n in enumerate(padded) if n == length], int(length)

    def _call(self, inputs: dict[str, Any], in_float32: bool) -> Tensor:
        if "use_cache" in self._parameters:
            inputs["use_cache"] = False
        with torch.inference_mode():
            if not in_float32:
                return self.model(**inputs)[0]
            widened = {
                name: tensor.float() for name, tensor in self.model.state_dict().items() if tensor.is_floating_point()
            }
            return functional_call(self.model, widened, kwargs=inputs)[0]


def _mixes(model: PreTrainedModel) -> bool:
    """Whether a convolution carries tokens into their neighbours, over the borders of a packed row too."""
    return any(isinstance(module, nn.Conv1d) and max(module.kernel_size) > 1 for module in model.modules())


def _similar_lengths(lengths: tuple[int, ...]) -> Iterator[list[int]]:
    """Indices in groups whose padding wastes little, shortest first."""
    members: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if members and lengths[i] > _WASTE * lengths[members[0]]:
            yield members
            members = []
        members.append(i)
    yield members
