"""A query against a stored document set, answered at once; the texts stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.conf import settings

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.models import Document, DocumentSet, ScoringModel
from scoring.models.scoring_model import ENCODERS
from scoring.payloads import SyncOptions, SyncRanking, SyncRequest
from scoring.services.scoring import ScoredItem, ScoringAnswer, answer_keep, call_run, options_for, request_row
from scoring.services.sets import document_set_check
from scoring.services.stage_plan import BM25, MAX_RETRIEVED

MAX_IDS: Final = MAX_RETRIEVED


@dataclass(frozen=True, slots=True)
class Candidates:
    """Which documents of the set; neither: all."""

    ids: Sequence[str] = ()
    bm25: int = 0


@dataclass(frozen=True, slots=True)
class RankedDocument:
    item: ScoredItem
    id: str
    text: str | None  # if asked for


@dataclass(frozen=True, slots=True)
class SetAnswer:
    scored: ScoringAnswer
    documents: list[RankedDocument]  # best first


def set_rank(
    *,
    principal: Principal,
    endpoint: str,
    document_set: DocumentSet,
    model: ScoringModel,
    query: str,
    candidates: Candidates,
    top_n: int | None = None,
    with_texts: bool = False,
    options: SyncOptions,
    timeout_ms: int | None = None,
    request_id: str = "",
    caller: Caller | None = None,
) -> SetAnswer:
    """Rank documents of the set and store what came of it, as ``scoring_run`` does.

    Raises AssayError, beside what ``scoring_run`` raises: 404 ``not_found`` when the set is deleted meanwhile, 409
    ``set_not_ready``, ``texts_deleted`` and ``packed_too_large``, 422 ``unknown_documents`` and
    ``too_many_candidates``, 503 ``set_not_encoded`` while its encodings are made.
    """
    document_set_check(document_set)
    options = options_for(model, options)
    positions = _positions(document_set, candidates.ids)
    count = len(positions) or document_set.counts["kept"]
    ranking = SyncRanking(
        document_set=str(document_set.pk),
        count=min(candidates.bm25, count) if candidates.bm25 else count,
        positions=positions,
        bm25=candidates.bm25,
        parameters=BM25 if candidates.bm25 else {},
        top_n=top_n or 0,
        packed=model.kind in ENCODERS and not model.is_remote,
        text_limit=settings.MAX_DOCUMENTS_PER_REQUEST,
    )
    call = SyncRequest(
        reply_key="",
        model_id=str(model.pk),
        model_name=model.name,
        queries=[query],
        documents=[],
        cache_salt=str(principal.team.pk),
        pairing="matrix",
        deadline=0.0,
        request_id=request_id,
        options=replace(options, ranking=ranking),
    )
    row = request_row(principal=principal, endpoint=endpoint, model=model, call=call)
    row.document_count = ranking.count
    gathered = call_run(principal=principal, call=call, model=model, timeout_ms=timeout_ms, row=row, caller=caller)
    row.report |= {"pairing": "matrix", "document_set": str(document_set.pk), "version": document_set.checksum}
    scored = answer_keep(row=row, model=model, gathered=gathered)
    return SetAnswer(scored, _named(document_set, scored.items, with_texts=with_texts))


def _positions(document_set: DocumentSet, ids: Sequence[str]) -> list[int]:
    """[n], ascending, each once."""
    if not ids:
        return []
    rows = Document.objects.filter(document_set=document_set, external_id__in=ids)
    found = dict(rows.values_list("external_id", "position"))
    if unknown := [name for name in dict.fromkeys(ids) if name not in found]:
        raise AssayError(
            "unknown_documents",
            f"The document set has no document {unknown[0][:80]!r}"
            f"{f' nor {len(unknown) - 1:,} others of those given' if len(unknown) > 1 else ''}. Give ids of its "
            "documents.",
            status=422,
            param="candidates.ids",
        )
    return sorted(found.values())


def _named(document_set: DocumentSet, items: Sequence[ScoredItem], *, with_texts: bool) -> list[RankedDocument]:
    """The items with their documents' ids. Raises AssayError 404 when these are gone."""
    rows = Document.objects.filter(document_set=document_set)
    if len(items) < document_set.counts["kept"]:
        rows = rows.filter(position__in=[item.index for item in items])
    columns = ("external_id", "text") if with_texts else ("external_id",)
    found: dict[int, Sequence[Any]] = {place: own for place, *own in rows.values_list("position", *columns)}
    if len(found) < len(items):
        raise AssayError("not_found", "The document set was deleted while it was ranked.", status=404)
    return [RankedDocument(item, found[item.index][0], found[item.index][1] if with_texts else None) for item in items]
