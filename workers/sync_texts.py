"""Synchronous requests for what single texts become: from the payload to the engine's request, and back.

Shapes: N texts; E dimensions, n tokens, k token ids, K labels of one text."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from scoring.payloads import SyncPooledText, SyncReply, SyncRequest, SyncRow, TokenTask
from workers.engine.errors import EngineError
from workers.engine.types import (
    ItemStatus,
    Pairing,
    PooledText,
    PoolingOptions,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    Priority,
    ScoringOptions,
    ScoringRequest,
    TextRole,
    Truncation,
)

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine.token_reader import TokenReader

MOST_BYTES: Final = 64 << 20  # of the vectors of one reply, which Redis and the web server hold in memory
TOKEN_TASKS: Final = frozenset(TokenTask)

Names = Callable[[Sequence[int]], list[str]]


def pooling_request(
    call: SyncRequest, name: str, *, deadline: float, cancelled: threading.Event | None
) -> PoolingRequest:
    """Raises ValueError or KeyError for a task, a role, a truncation or a priority that there is not."""
    given = call.options
    return PoolingRequest(
        model=name,
        inputs=tuple(call.documents),
        input_ids=tuple(map(tuple, call.document_ids)),
        task=PoolingTask(given.task),
        role=TextRole(given.role),
        priority=Priority[given.priority.upper()],
        deadline=deadline,
        cancelled=cancelled,
        options=PoolingOptions(
            max_tokens=given.max_tokens_per_document,
            truncation=Truncation(given.truncation),
            dimensions=given.dimensions,
            normalize=given.normalize,
            use_activation=given.use_activation,
        ),
    )


def packed(values: npt.NDArray[Any] | None) -> str:
    return "" if values is None else base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()


def pooled_reply(output: PoolingOutput, worker_name: str, names: Names | None) -> SyncReply:
    """``names``: of token ids, where they are asked for. Raises EngineError for more than MOST_BYTES."""
    size = sum(_bytes(text) for text in output.data)
    if size > MOST_BYTES:
        raise EngineError(
            "answer_too_large",
            f"The answer would hold {size / 2**20:,.0f} MiB of numbers; the limit is {MOST_BYTES >> 20} MiB. Send "
            "fewer or shorter texts at once.",
        )
    return SyncReply(
        statuses=[ItemStatus(text.status).name.lower() for text in output.data],
        errors={str(place): code for place, code in output.errors.items()},
        truncated_tokens=[text.truncated_tokens for text in output.data],
        pooled=[_pooled(text, names) for text in output.data],
        pooled_labels=list(output.labels),
        prompt_tokens=output.prompt_tokens,
        timings=asdict(output.timings),
        backend=output.backend,
        dtype=output.dtype,
        revision=output.revision,
        worker=worker_name,
    )


def token_reply(call: SyncRequest, reader: TokenReader, worker_name: str) -> SyncReply:
    """Raises EngineError for what the model cannot read."""
    names = reader.names if call.options.return_tokens else None
    if call.options.task == TokenTask.DETOKENIZE:
        pooled = [SyncPooledText(text=reader.text_of(ids)) for ids in call.document_ids]
    else:
        pooled = [SyncPooledText(rows=_rows(call, text, reader, names)) for text in call.documents]
    count = sum(len(row.token_ids) for text in pooled for row in text.rows) + sum(map(len, call.document_ids))
    return SyncReply(
        statuses=["ok"] * len(pooled),
        truncated_tokens=[0] * len(pooled),
        pooled=pooled,
        prompt_tokens=count,
        worker=worker_name,
    )


def _rows(call: SyncRequest, text: str, reader: TokenReader, names: Names | None) -> list[SyncRow]:
    given = call.options
    if call.queries:
        options = ScoringOptions(
            max_tokens_per_query=given.max_tokens_per_query,
            max_tokens_per_document=given.max_tokens_per_document,
            truncation=Truncation(given.truncation),
            instruction=given.instruction,
        )
        request = ScoringRequest("", tuple(call.queries), (text,), Pairing.PAIRWISE, options=options)
        rows = [(role.value, ids) for role, ids in reader.pair(request)]
    else:
        rows = [(TextRole.DOCUMENT.value, reader.text(text, surrounded=given.add_special_tokens))]
    return [SyncRow(role=role, token_ids=list(ids), tokens=names(ids) if names else []) for role, ids in rows]


def _pooled(text: PooledText, names: Names | None) -> SyncPooledText:
    ids = [int(token_id) for token_id in (text.token_ids if text.sparse is None else text.sparse[0])]
    return SyncPooledText(
        vector=packed(text.vector),
        token_vectors=packed(text.token_vectors),
        classes=packed(text.classes),
        token_classes=packed(text.token_classes),
        token_ids=ids,
        tokens=names(ids) if names else [],
        weights="" if text.sparse is None else packed(text.sparse[1]),
        spans=[[span.label, span.score, span.start, span.end] for span in text.spans],
    )


def _bytes(text: PooledText) -> int:
    arrays = (text.vector, text.token_vectors, text.classes, text.token_classes, *(text.sparse or ()))
    return sum(array.nbytes for array in arrays if array is not None)
