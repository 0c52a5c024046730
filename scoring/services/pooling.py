"""One synchronous request for what single texts become, from the border to the stored row: vectors, shares of labels,
token ids. Deadline, routing and refusals are those of scoring; the texts are its documents, without a query.

Shapes: E dimensions, n tokens, k token ids, K labels of one text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.payloads import SyncOptions, SyncPooledText, SyncReply, SyncRequest
from scoring.services.scoring import KEPT_RESULTS, Side, call_run, check_dimensions, request_row
from scoring.states import ItemStatus

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PooledItem:
    """What one text became. Arrays are None where the task gives none."""

    index: int
    status: ItemStatus
    error: str | None
    truncated_tokens: int
    payload: SyncPooledText

    @property
    def vector(self) -> Floats | None:  # [E]
        return _unpacked(self.payload.vector)

    @property
    def classes(self) -> Floats | None:  # [K]
        return _unpacked(self.payload.classes)

    @property
    def weights(self) -> Floats | None:  # [k], of ``payload.token_ids``
        return _unpacked(self.payload.weights)

    @property
    def sparse_weights(self) -> list[float]:
        return [] if self.weights is None else numbers(self.weights)

    @property
    def token_vectors(self) -> Floats | None:  # [n, E]
        return self._by_token(self.payload.token_vectors)

    @property
    def token_classes(self) -> Floats | None:  # [n, K]
        return self._by_token(self.payload.token_classes)

    def _by_token(self, packed: str) -> Floats | None:
        values = _unpacked(packed)
        return None if values is None else values.reshape(len(self.payload.token_ids), -1)


@dataclass(frozen=True, slots=True)
class PoolingAnswer:
    id: str
    model: ScoringModel
    items: list[PooledItem]
    reply: SyncReply
    cold_start: float = 0.0
    rate_limit: Mapping[str, str] = field(default_factory=dict)  # headers: how far quotas are used

    @property
    def labels(self) -> list[str]:
        return self.reply.pooled_labels


def pooling_run(
    *,
    principal: Principal,
    endpoint: str,
    model: ScoringModel,
    inputs: Sequence[Side],
    task: str,
    options: SyncOptions | None = None,
    query: str | None = None,
    param: str = "input",
    whole: bool = False,
    timeout_ms: int | None = None,
    request_id: str = "",
    user: str = "",
    caller: Caller | None = None,
) -> PoolingAnswer:
    """Do ``task`` with each of ``inputs``, which are texts only or token ids only, and store that it was done.

    ``param`` is the client's name of the inputs, for our own refusals; ``query`` what they are to be tokenised with;
    ``user`` whom the client asks for, kept with the request. ``whole``: one text without numbers refuses all.

    Raises AssayError as ``scoring_run`` does; with ``whole`` also 422 ``empty_text`` and ``remote_refused``, and 500
    ``non_finite_value``.
    """
    options = replace(options or SyncOptions(), task=task)
    _check_size(inputs, param)
    check_dimensions(model, options.dimensions)
    call = SyncRequest(
        reply_key="",
        model_id=str(model.pk),
        model_name=model.name,
        queries=[] if query is None else [query],
        documents=[text for text in inputs if isinstance(text, str)],
        document_ids=[ids for ids in inputs if not isinstance(ids, str)],
        pairing="pairwise",
        deadline=0.0,
        request_id=request_id,
        options=options,
    )
    row = request_row(principal=principal, endpoint=endpoint, model=model, call=call)
    gathered = call_run(principal=principal, call=call, model=model, timeout_ms=timeout_ms, row=row, caller=caller)
    items = _items(gathered.reply)
    row.results = [
        {"index": item.index, "score": None, "raw_score": None, "status": item.status} for item in items[:KEPT_RESULTS]
    ]
    row.report |= {"task": task, **({"user": user} if user else {})}
    refusal = _unanswered(items, model, param) if whole else None
    if refusal is not None:
        row.status_code, row.error_code = refusal.status, refusal.code
    row.save(force_insert=True)
    if refusal is not None:
        raise refusal
    return PoolingAnswer(str(row.pk), model, items, gathered.reply, gathered.cold_start, gathered.rate_limit)


def _unanswered(items: Sequence[PooledItem], model: ScoringModel, param: str) -> AssayError | None:
    """Why an answer that has no place for a text without numbers cannot be given, if so."""
    if empty := [item.index for item in items if item.status == ItemStatus.EMPTY]:
        return AssayError(
            "empty_text",
            f"There is nothing to read in {_listed(param, empty)}; give a text that holds more than blanks, or leave "
            "it out.",
            status=422,
            param=f"{param}[{empty[0]}]",
        )
    if refused := [item.index for item in items if item.error == "remote_refused"]:
        return AssayError(
            "remote_refused",
            f"The server of model '{model.name}' refuses {_listed(param, refused)}, while it answers others. Shorten "
            "them, or leave them out.",
            status=422,
            param=f"{param}[{refused[0]}]",
        )
    if failed := [item.index for item in items if item.status == ItemStatus.FAILED]:
        message = f"The model '{model.name}' gave no finite numbers for {_listed(param, failed)}."
        return AssayError("non_finite_value", message, status=500)
    return None


def _items(reply: SyncReply) -> list[PooledItem]:
    return [
        PooledItem(index, ItemStatus(status), reply.errors.get(str(index)), truncated, payload)
        for index, (status, truncated, payload) in enumerate(
            zip(reply.statuses, reply.truncated_tokens, reply.pooled, strict=True)
        )
    ]


def _check_size(inputs: Sequence[Side], param: str) -> None:
    limit = settings.MAX_DOCUMENTS_PER_REQUEST
    if len(inputs) > limit:
        raise AssayError(
            "too_many_documents",
            f"The request holds {len(inputs):,} texts; the limit is {limit:,}. Split it.",
            status=413,
            param=param,
            extra={"limit": limit},
        )


def _listed(param: str, places: Sequence[int]) -> str:
    return ", ".join(f"{param}[{place}]" for place in places[:8]) + (" …" if len(places) > 8 else "")


def _unpacked(packed: str) -> Floats | None:
    return np.frombuffer(base64.b64decode(packed), "<f4") if packed else None


def numbers(values: Floats) -> list[Any]:
    """As JSON holds them: each float32 exactly."""
    listed: list[Any] = values.tolist()
    return listed
