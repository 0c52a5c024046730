"""What single texts become on a remote engine: vectors, vectors of their tokens, shares of classes.

Shapes: E dimensions, n tokens, K classes of one text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from workers.engine.errors import EngineError
from workers.engine.model_types import ModelKind
from workers.engine.types import ItemStatus, PooledText, PoolingRequest, PoolingTask, TextRole, Truncation
from workers.remote.asking import HARMLESS, Question
from workers.remote.shape import Call, Pooled, Shape
from workers.remote.spec import RemoteSpec

TASKS: Final = {
    ModelKind.BI_ENCODER: PoolingTask.EMBED,
    ModelKind.LATE_INTERACTION: PoolingTask.TOKEN_EMBED,
    ModelKind.CLASSIFIER: PoolingTask.CLASSIFY,
}
UNTOLD: Final = -1  # the id of a token that only the server knows

Numbers = npt.NDArray[np.float32]


def pooling_question(
    spec: RemoteSpec, shape: Shape, task: PoolingTask, role: TextRole, *, raw: bool = False
) -> Question[Numbers]:
    def call(texts: list[str]) -> Call:
        return shape.pool(task, spec.remote_model, texts, role, raw=raw)

    def read(answer: Any, count: int) -> list[Numbers]:
        found = shape.pooled(task, answer)
        if len(found) != count:
            raise ValueError("not one result for each text")
        return [_numbers(each, task, spec.labels) for each in found]

    return Question(call=call, read=read, checks=(call([HARMLESS]),))


def text_of(text: str, found: Mapping[str, Numbers | None], task: PoolingTask, *, normalize: bool) -> PooledText:
    if text not in found:
        return PooledText(ItemStatus.EMPTY)
    values = found[text]
    if values is None or not np.isfinite(values).all():
        return PooledText(ItemStatus.FAILED)
    match task:
        case PoolingTask.TOKEN_EMBED:
            return PooledText(ItemStatus.OK, token_ids=(UNTOLD,) * len(values), token_vectors=values)
        case PoolingTask.CLASSIFY:
            return PooledText(ItemStatus.OK, classes=values)
    length = float(np.linalg.norm(values))
    return PooledText(ItemStatus.OK, vector=values / np.float32(length) if normalize and length else values)


def demand_poolable(spec: RemoteSpec, tasks: Sequence[PoolingTask], request: PoolingRequest) -> None:
    options, who = request.options, f"The model '{spec.name}' is computed by {spec.engine}, which"
    if request.task not in tasks:
        able = f"it can {tasks[0]}" if tasks else "it scores pairs"
        raise EngineError("unsupported_task", f"{who} is not asked to {request.task} as a {spec.kind}; {able}.")
    if request.input_ids:
        raise EngineError("token_ids_refused", f"{who} takes texts, not token ids. Give the texts.")
    if options.dimensions is not None:
        raise EngineError("bad_dimensions", f"{who} is not asked for shorter vectors. Leave dimensions out.")
    if options.max_tokens is not None:
        raise EngineError("bad_limit", f"{who} cuts texts by its own limits. Leave the limit out.")
    if options.truncation is not Truncation.DOCUMENT or options.normalize is False:
        raise EngineError(
            "unsupported_option",
            f"{who} cuts long texts itself and gives vectors of the length that it likes. Leave truncation and "
            "normalize: false out.",
        )


def _numbers(pooled: Pooled, task: PoolingTask, labels: Sequence[str]) -> Numbers:
    """[E], [n, E] or [K]. Raises ValueError for other shapes and other classes."""
    if isinstance(pooled, Mapping):
        if set(pooled) != set(labels):
            raise ValueError("other classes than those registered")
        pooled = [pooled[label] for label in labels]
    values = np.array(pooled, dtype=np.float32)
    if values.ndim != (2 if task is PoolingTask.TOKEN_EMBED else 1) or not values.size:
        raise ValueError("no numbers of the task's shape")
    if task is PoolingTask.CLASSIFY and len(values) != len(labels):
        raise ValueError("more or fewer classes than those registered")
    return values
