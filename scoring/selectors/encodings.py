"""Reads about document sets that are encoded ahead: what there is, and what one would take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db.models import F, QuerySet, Sum

from assay.api.principal import Principal
from scoring.ingest.lengths import ENDS
from scoring.models import DocumentSet, ScoringModel, SetEncoding
from scoring.models.scoring_model import ENCODERS, ModelEngine, ModelKind
from scoring.selectors.models import models_served, models_usable
from scoring.selectors.pace import model_paces
from scoring.states import EncodingState

TOKENS_PER_WORD: Final = 4 / 3  # of English
MADE_BY: Final = ("revision", "dtype", "max_length")  # a change of one makes other encodings


@dataclass(frozen=True, slots=True)
class EncodingEstimate:
    """``size`` in bytes, by what the model's encodings took so far, else those of its self-test; None where neither is
    known. ``seconds`` of computing, by its measured pace; None where it has scored nothing yet. ``kept_bytes``: what a
    worker keeps of all sets together."""

    documents: int
    tokens: int | None
    size: int | None
    seconds: float | None
    kept_bytes: int
    on_disk: bool

    @property
    def too_large(self) -> bool:
        return self.size is not None and self.size > self.kept_bytes


@dataclass(frozen=True, slots=True)
class EncodingRow:
    """``lost``: it was in the memory of a process that ended. ``outdated``: the model has changed since."""

    encoding: SetEncoding
    lost: bool
    outdated: bool

    @property
    def percent(self) -> int:
        return 100 * self.encoding.documents_done // max(self.encoding.documents_total, 1)

    @property
    def is_kept(self) -> bool:
        return self.encoding.state == EncodingState.DONE and not self.lost and not self.outdated


def encoders_served(principal: Principal) -> QuerySet[ScoringModel]:
    """Models that can encode a set ahead, of those that the principal may use."""
    able = models_served().filter(kind__in=ENCODERS, engine=ModelEngine.LOCAL)
    return models_usable(able, principal).order_by("name")


def made_by(model: ScoringModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in MADE_BY}


def encodings_of(principal: Principal) -> QuerySet[SetEncoding]:
    return SetEncoding.objects.for_team(principal.team).select_related("model", "worker", "created_by", "document_set")


def set_encodings(document_set: DocumentSet) -> list[EncodingRow]:
    """The newest first. One query."""
    rows = SetEncoding.objects.filter(document_set=document_set).select_related("model", "worker", "created_by")
    return [encoding_row(row) for row in rows]


def encoding_row(encoding: SetEncoding) -> EncodingRow:
    worker = encoding.worker
    lost = worker is not None and not encoding.on_disk and worker.boot_id != encoding.boot_id
    ended = encoding.state == EncodingState.DONE
    return EncodingRow(encoding, ended and lost, ended and made_by(encoding.model) != encoding.made_by)


def encoding_estimate(document_set: DocumentSet, model: ScoringModel) -> EncodingEstimate:
    documents = document_set.counts.get("kept", 0) - document_set.counts.get("empty", 0)
    limit = model.max_length or model.facts.get("max_length")
    tokens = _tokens(document_set, limit)
    pace = model_paces([model.name]).get(model.name)
    return EncodingEstimate(
        documents=documents,
        tokens=tokens,
        size=_size(model, documents, tokens),
        seconds=documents / pace if pace else None,
        kept_bytes=_kept_bytes(model),
        on_disk=kept_on_disk(model),
    )


def kept_on_disk(model: ScoringModel) -> bool:
    return settings.DISK_CACHE_BYTES > 0 and model.document_cache_bytes != 0


def _kept_bytes(model: ScoringModel) -> int:
    if kept_on_disk(model):
        return settings.DISK_CACHE_BYTES
    own, of_all = model.document_cache_bytes, settings.DOCUMENT_CACHE_BYTES
    return of_all if own is None else min(own, of_all)


def _tokens(document_set: DocumentSet, limit: int | None) -> int | None:
    """Of all texts, each cut to ``limit``; from their words, which were counted when they were imported."""
    statistics = document_set.statistics
    if "words" not in statistics:
        return None
    words = statistics["words"]
    if limit:  # what is longer than the limit counts with it, by the middle of its column
        middles = [1.5 * (end // 2) for end in (*ENDS, 2 * ENDS[-1])]
        over = zip(statistics["histogram"], middles, strict=False)
        words -= sum(count * max(middle - limit / TOKENS_PER_WORD, 0) for count, middle in over)
    return round(max(words, 0) * TOKENS_PER_WORD)


def _size(model: ScoringModel, documents: int, tokens: int | None) -> int | None:
    """Vectors of tokens grow with the tokens, others with the documents."""
    measured = SetEncoding.objects.filter(model=model, size__gt=0, made_by=made_by(model)).aggregate(
        size=Sum("size"), tokens=Sum("tokens"), documents=Sum(F("documents_done"))
    )
    by_tokens = (model.has_maxsim or model.kind == ModelKind.SPARSE) and tokens is not None
    if measured["size"]:
        each = measured["size"] / max(measured["tokens" if by_tokens else "documents"], 1)
    else:  # by the few texts of its self-test
        each = model.facts.get("encoded_bytes", {}).get("token" if by_tokens else "document")
    return None if each is None else round(each * (tokens if by_tokens and tokens else documents))
