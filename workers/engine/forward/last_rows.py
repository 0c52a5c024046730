"""Behind its last attention an encoder works token by token, and a cross-encoder's head reads one token of each pair:
the others need not be computed there. For a model of six layers that is an eighth of its products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

# The module behind the last attention; what follows it there takes its output alone.
_BEHIND_ATTENTION = dict.fromkeys(
    ("bert", "camembert", "electra", "roberta", "xlm-roberta"), "encoder.layer.{}.attention.output"
)


class LastRows:
    """While ``only(rows)`` is in force, the body's last hidden states are those of the given rows, ``[1, n, E]``."""

    def __init__(self, module: nn.Module) -> None:
        self._rows: Tensor | None = None
        module.register_forward_pre_hook(self._cut)

    @contextmanager
    def only(self, rows: Tensor) -> Iterator[None]:
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def _cut(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = self._rows
        return inputs if rows is None else tuple(given[:, rows] for given in inputs)  # [1, T, E] to [1, n, E]


def last_rows(body: PreTrainedModel) -> LastRows | None:
    """None where the architecture is not known to be token by token from there on. The body must run packed."""
    path = _BEHIND_ATTENTION.get(body.config.model_type)
    return None if path is None else LastRows(body.get_submodule(path.format(body.config.num_hidden_layers - 1)))
