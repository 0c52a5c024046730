"""One synchronous scoring request, from the border to the stored row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from django.conf import settings

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.backpressure import model_admit
from scoring.dispatch import load_of, pairs_of
from scoring.gathering import Gathering
from scoring.models import ScoreRequest, ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncOptions, SyncReply, SyncRequest
from scoring.ranking import decimals
from scoring.routing import ModelRouter
from scoring.scatter import alike, merged
from scoring.services.admission import admitted
from scoring.states import ItemStatus
from scoring.sync_metrics import sync_observe

# What the engine may refuse, and the field at fault. Anything else that it reports is our fault: 500.
CLIENT_FAULTS: Final = {
    "too_long": "documents",
    "bad_limit": "max_tokens_per_doc",
    "max_tokens_too_small": "truncate_prompt_tokens",
    "bad_dimensions": "dimensions",
    "unsupported_option": "long_documents",
    "remote_refused": "documents",
    "too_many_windows": "long_documents",
    "unsupported_task": "model",
    "no_instruction": "instruction",
    "prompt_too_long": "instruction",
    "no_room": "query",
    "unequal_lengths": "queries",
    "too_many_candidates": "candidates",
    "token_ids_refused": "items",
    "text_and_token_ids": "items",
    "unknown_prompt_token_id": "items",
    "bad_template": "template",
    "template_ignores_item_first": "template",
    "unsupported_tokenizer": "template",
    "equal_labels": "labels",
    "one_label": "labels",
    "label_merges_with_prompt": "labels",
    "empty_label": "labels",
    "unknown_token_id": "label_token_ids",
}
BUSY: Final = {
    "answer_too_large": 413,
    "overloaded": 429,
    "model_not_served": 409,
    "packed_too_large": 409,
    "not_found": 404,  # a document set, deleted meanwhile
    "set_not_encoded": 503,
    "not_packed": 503,
    "model_load_failed": 503,
    "model_not_loaded": 503,
    "model_unloaded": 503,
    "out_of_memory": 503,
    "closed": 503,
    "shutting_down": 503,
    "unknown_payload": 503,
    "remote_unavailable": 503,
    "deadline_exceeded": 504,
    "cancelled": 503,
    "caller_left": 503,
}
ANSWERED: Final = (ItemStatus.OK, ItemStatus.TRUNCATED)
ENGINE_PHASES: Final = ("forward", "maxsim")
KEPT_RESULTS: Final = 1000
Side = str | list[int]  # a text, or the token ids in its place


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """One pair's outcome. ``index`` counts in the order submitted; of a stored set's document it is its position."""

    index: int
    score: float | None
    raw_score: float | None
    status: ItemStatus
    error: str | None
    truncated_tokens: int
    window: list[int] | None  # where in a long document its score is from


@dataclass(frozen=True, slots=True)
class Gathered:
    """A reply and how it came about. ``cold_start``: seconds until a worker had loaded the model; ``compute_seconds``:
    of the engines of all its parts."""

    reply: SyncReply
    parts: int
    retries: int
    cold_start: float
    compute_seconds: float
    rate_limit: Mapping[str, str] = field(default_factory=dict)  # headers: how far quotas are used


@dataclass(frozen=True, slots=True)
class ScoringAnswer:
    id: str
    model: ScoringModel
    items: list[ScoredItem]
    reply: SyncReply
    cold_start: float = 0.0
    rate_limit: Mapping[str, str] = field(default_factory=dict)  # headers: how far quotas are used

    def ranked(self) -> list[ScoredItem]:
        """Best first: scored before unscored, raw score descending, ties in the order submitted."""
        return sorted(self.items, key=lambda item: (item.raw_score is None, -(item.raw_score or 0.0)))


def scoring_run(
    *,
    principal: Principal,
    endpoint: str,
    model: ScoringModel,
    queries: Sequence[Side],
    documents: Sequence[Side],
    pairing: str = "matrix",
    options: SyncOptions | None = None,
    timeout_ms: int | None = None,
    request_id: str = "",
    caller: Caller | None = None,
    keep_texts: bool = True,
) -> ScoringAnswer:
    """Score ``queries`` × ``documents`` (``matrix``) or pair by pair (``pairwise``) and store what came of it. Either
    side is texts only or token ids only. The deadline counts from ``caller``'s arrival; when it leaves, what is not
    started is dropped. ``keep_texts``: if the installation keeps any; not of what is stored elsewhere.

    Raises AssayError: 413 ``too_many_documents``, 422 / 409 for what the engine refuses, 429 ``overloaded``,
    ``too_many_waiting`` and ``quota_exceeded``, 503 ``no_worker``, ``worker_lost``, ``model_load_failed`` and
    ``model_not_loaded`` (see ``ScoringModel.cold_policy``), 504 ``deadline_exceeded``, 499 ``client_left``. Refusals
    are stored too.
    """
    options = options or SyncOptions()
    _check_size(queries, documents, pairing)
    options = options_for(model, options)
    call = SyncRequest(
        reply_key="",
        model_id=str(model.pk),
        model_name=model.name,
        queries=[query for query in queries if isinstance(query, str)],
        documents=[document for document in documents if isinstance(document, str)],
        query_ids=[query for query in queries if not isinstance(query, str)],
        document_ids=[document for document in documents if not isinstance(document, str)],
        cache_salt=str(principal.team.pk),
        pairing=pairing,
        deadline=0.0,
        request_id=request_id,
        options=options,
    )
    row = request_row(principal=principal, endpoint=endpoint, model=model, call=call)
    if not keep_texts:
        row.queries = row.documents = None
    gathered = call_run(principal=principal, call=call, model=model, timeout_ms=timeout_ms, row=row, caller=caller)
    row.report["pairing"] = pairing
    return answer_keep(row=row, model=model, gathered=gathered)


def answer_keep(*, row: ScoreRequest, model: ScoringModel, gathered: Gathered) -> ScoringAnswer:
    """Save the row of a request that was answered with scores."""
    items = _items(gathered.reply)
    row.results = [
        {"index": item.index, "score": item.score, "raw_score": item.raw_score, "status": item.status}
        for item in items[:KEPT_RESULTS]
    ]
    row.save(force_insert=True)
    return ScoringAnswer(str(row.pk), model, items, gathered.reply, gathered.cold_start, gathered.rate_limit)


def request_row(*, principal: Principal, endpoint: str, model: ScoringModel, call: SyncRequest) -> ScoreRequest:
    """The row of a request that was not answered yet, not saved either."""
    row = ScoreRequest(
        team=principal.team,
        created_by=principal.user,
        token=principal.token,
        endpoint=endpoint,
        model=model,
        model_name=model.name,
        request_id=call.request_id,
        status_code=200,
        query_count=len(call.queries) + len(call.query_ids),
        document_count=len(call.documents) + len(call.document_ids),
    )
    if settings.KEEP_REQUEST_TEXTS:
        row.queries, row.documents = call.queries, call.documents
    return row


def call_run(
    *,
    principal: Principal,
    call: SyncRequest,
    model: ScoringModel,
    timeout_ms: int | None,
    row: ScoreRequest,
    caller: Caller | None,
) -> Gathered:
    """Have ``call`` answered and write into ``row`` how that went; a refusal is saved and raised."""
    try:
        with admitted(principal=principal, documents=pairs_of(call)) as admission:
            gathered = _answered(call, model, timeout_ms, admission.stay, caller or Caller())
            reply = gathered.reply
            answered = sum(status in ANSWERED for status in reply.statuses) if reply.scored is None else reply.scored
            admission.scored = row.scored_count = answered
    except AssayError as error:
        row.status_code, row.error_code = error.status, error.code
        row.save(force_insert=True)
        raise
    row.compute_seconds = gathered.compute_seconds
    row.model_revision, row.prompt_tokens, row.timings = reply.revision, reply.prompt_tokens, reply.timings
    row.report = {
        "backend": reply.backend,
        "fallback": reply.fallback,
        "dtype": reply.dtype,
        "scale": reply.scale,
        "worker": reply.worker,
        "cached_documents": reply.cached_documents,
        "parts": gathered.parts,
        "retries": gathered.retries,
        "cold_start": gathered.cold_start,
        **call.options.kept(),
    }
    return replace(gathered, rate_limit=admission.headers())


def _answered(
    call: SyncRequest, model: ScoringModel, timeout_ms: int | None, stay: Callable[[], None], caller: Caller
) -> Gathered:
    """Raises AssayError for a reply that refuses, as for none."""
    allowed = min(timeout_ms or settings.SYNC_TIMEOUT_MS, settings.SYNC_TIMEOUT_MAX_MS) / 1000
    seconds = allowed - caller.waited
    if seconds <= 0:
        message = (
            f"The {allowed:g} s that the request may take had passed before a worker was asked. Give it more time."
        )
        raise AssayError("deadline_exceeded", message, status=504)
    with model_admit(model=model, pairs=load_of(call), seconds=seconds) as taken_on:
        gathered = _gathered(call, model, seconds, stay, caller)
        reply = gathered.reply
        if not reply.error_code:
            taken_on.answered(cold_seconds=gathered.cold_start)
    if reply.error_code:
        param = _param(reply)
        status = 422 if param else BUSY.get(reply.error_code, 500)
        retry_after = 2 if status in (429, 503) else None
        raise AssayError(reply.error_code, reply.error_message, status=status, param=param, retry_after=retry_after)
    sync_observe(
        model_name=model.name,
        timings_ms=reply.timings,
        parts=gathered.parts,
        retries=gathered.retries,
        cold=gathered.cold_start,
    )
    return gathered


def _gathered(
    call: SyncRequest, model: ScoringModel, seconds: float, stay: Callable[[], None], caller: Caller
) -> Gathered:
    router = ModelRouter(model)
    started = time.monotonic()
    gathering = Gathering(router.plan(call), router, seconds, stay, caller)
    replies = gathering.run()
    if len(gathering.parts) > 1 and not _one_answer(replies):
        # Asked whole: a refusal then names the documents by their places in the request, and no model was changed
        # between two parts.
        left = max(seconds - (time.monotonic() - started), 0.0)
        gathering = Gathering(router.plan(call, whole=True), router, left, stay, caller)
        replies = gathering.run()
    parts = gathering.parts
    reply = replies[0]
    if len(parts) > 1 and not reply.error_code:
        queries = len(call.query_ids) + len(call.queries)
        reply = merged(replies, [part.documents for part in parts], queries=queries)
    compute = sum(each.timings.get(phase, 0.0) for each in replies for phase in ENGINE_PHASES) / 1000
    return Gathered(reply, len(parts), gathering.retries, round(gathering.cold_seconds, 3), compute)


def _one_answer(replies: Sequence[SyncReply]) -> bool:
    """Whether the parts make one answer: scores of one version of the model, or a refusal that concerns no document."""
    if code := replies[0].error_code:
        return code not in CLIENT_FAULTS
    return alike(replies)


def _param(reply: SyncReply) -> str | None:
    if reply.error_code == "unknown_prompt_token_id" and "queries[" in reply.error_message:
        return "query"
    return CLIENT_FAULTS.get(reply.error_code)


def _items(reply: SyncReply) -> list[ScoredItem]:
    windows: Sequence[list[int] | None] = reply.best_windows or [None] * len(reply.scores)
    places: Sequence[int] = reply.positions or range(len(reply.scores))
    columns = (
        places,
        decimals(reply.scores),
        decimals(reply.raw_scores),
        reply.statuses,
        reply.truncated_tokens,
        windows,
    )
    return [
        ScoredItem(
            place,
            score,
            raw,
            ItemStatus(status),
            reply.errors.get(str(pair)),
            truncated,
            None if score is None else window,
        )
        for pair, (place, score, raw, status, truncated, window) in enumerate(zip(*columns, strict=True))
    ]


def _check_size(queries: Sequence[Side], documents: Sequence[Side], pairing: str) -> None:
    limit = settings.MAX_DOCUMENTS_PER_REQUEST
    pairs = _pairs(queries, documents, pairing)
    if pairs > limit:
        raise AssayError(
            "too_many_documents",
            f"The request holds {pairs:,} query-document pairs; the limit is {limit:,}. Split it, or submit a job.",
            status=413,
            param="documents",
            extra={"limit": limit},
        )


def _pairs(queries: Sequence[Side], documents: Sequence[Side], pairing: str) -> int:
    return len(queries) * len(documents) if pairing == "matrix" else len(documents)


def check_dimensions(model: ScoringModel, dimensions: int | None) -> None:
    """Raises AssayError 422 ``bad_dimensions`` unless the model's vectors may be shortened to that."""
    allowed = model.facts.get("shorter_dimensions")
    if dimensions is None or allowed == [] or (allowed and dimensions in allowed):
        return
    widths = ", ".join(map(str, allowed or ()))
    why = f"may be shortened to {widths} dimensions" if allowed else "was not trained to be shortened (Matryoshka)"
    raise AssayError(
        "bad_dimensions",
        f"{dimensions} dimensions were asked for, but the vector of model '{model.name}' {why}. "
        f"{f'Give one of {widths}' if allowed else 'Leave it out'}.",
        status=422,
        param="dimensions",
    )


def _limits_by_text(model: ScoringModel, options: SyncOptions) -> SyncOptions:
    """For models that read texts one by one, the limit of a pair is the limit of each of its texts."""
    if options.max_tokens is None or model.kind in (ModelKind.CROSS_ENCODER, ModelKind.GENERATIVE):
        return options
    if model.kind == ModelKind.LISTWISE:
        raise AssayError(
            "unsupported_option",
            f"The model '{model.name}' ({model.kind}) reads many documents in one prompt, so that no pair has a limit "
            "of its own. Leave truncate_prompt_tokens out, or give max_tokens_per_doc.",
            status=422,
            param="truncate_prompt_tokens",
        )
    return replace(
        options,
        max_tokens=None,
        max_tokens_per_query=min(options.max_tokens, options.max_tokens_per_query or options.max_tokens),
        max_tokens_per_document=min(options.max_tokens, options.max_tokens_per_document or options.max_tokens),
    )


def options_for(model: ScoringModel, options: SyncOptions) -> SyncOptions:
    """The options as the model takes them. Raises AssayError 422 for what the engine would pass over in silence."""
    check_dimensions(model, options.dimensions)
    if not options.use_activation and model.kind != ModelKind.CROSS_ENCODER:
        raise AssayError(
            "unsupported_option",
            f"The model '{model.name}' ({model.kind}) puts no activation on its scores; use_activation: false is for "
            "cross-encoders. Leave it out: raw_score holds what ranking uses.",
            status=422,
            param="use_activation",
        )
    return _limits_by_text(model, options)
