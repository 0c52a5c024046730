"""What crosses a process border as JSON: one synchronous request and its reply.

Web and workers are upgraded one after the other, so a process understands its own version and the neighbouring ones:
a field that the other side does not send has its default, a field that it does not know is left out of account. A field
with its default is not sent at all. Hence the rules for whoever adds one: its default means "as before" and never
changes; what changes a score belongs into ``SyncOptions``, where an unknown name is refused, as a wrong score is worse
than none; ``PAYLOAD_VERSION`` grows by one in a release that sends what the one before it cannot be asked to leave out.
NaN never crosses: an item without a score carries ``None``. Vectors cross as base64 of little-endian float32.

One request is for scores, or (``SyncOptions.task``) for what single texts become: their vectors, label shares or token
ids. Its texts are then its documents, and the reply's ``pooled`` has one element for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any, Self

PAYLOAD_VERSION = 3


class PayloadError(ValueError):
    """The other side speaks a version too far from ours, or not this language at all."""


def _check_version(cls: type, data: Mapping[str, Any]) -> None:
    version = data.get("version")
    if not isinstance(version, int) or abs(version - PAYLOAD_VERSION) > 1:
        raise PayloadError(
            f"{cls.__name__} has version {version!r}; this process speaks version {PAYLOAD_VERSION} and understands "
            "its neighbours. Bring web and workers to the same release."
        )


@cache
def _defaults(cls: Any) -> dict[str, Any]:
    """What each field is unless it is said: MISSING where it has to be. To compare with, nothing else."""
    return {
        each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(cls)
    }


def _understood(cls: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``data`` that ``cls`` has. Raises PayloadError where one is missing that has no default."""
    defaults = _defaults(cls)
    if missing := [name for name, default in defaults.items() if default is MISSING and name not in data]:
        raise PayloadError(f"{cls.__name__} lacks {', '.join(sorted(missing))}.")
    return {name: data[name] for name in defaults if name in data}


def _told(payload: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    cls: Any = type(payload)
    return {name: value for name, default in _defaults(cls).items() if (value := getattr(payload, name)) != default}


class TokenTask(StrEnum):
    """What a request may ask of a tokenizer."""

    TOKENIZE = "tokenize"  # the documents; with a query, each document as it is scored with it
    DETOKENIZE = "detokenize"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRanking:
    """Documents of a stored set, in place of texts: all, those at ``positions``, or the best ``bm25`` by BM25."""

    document_set: str
    count: int  # of the documents that are ranked, at most
    positions: list[int] = field(default_factory=list)  # ascending
    bm25: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)  # of BM25
    top_n: int = 0  # so many come back; 0: all
    packed: bool = False  # the model encodes documents by themselves: the set's encodings are kept
    text_limit: int = 0  # so many may be scored from their texts


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    max_tokens_per_query: int | None = None
    max_tokens_per_document: int | None = None
    max_tokens: int | None = None  # of a whole pair
    truncation: str = "document"  # document | error
    instruction: str = ""
    use_activation: bool = True
    labels: list[str] = field(default_factory=list)
    label_token_ids: list[int | list[int]] = field(default_factory=list)
    apply_softmax: bool = True
    item_first: bool = False
    template: str = ""
    add_special_tokens: bool = True
    long_documents: str = "truncate"  # truncate | chunk_max
    chunk_overlap: int = 64
    dimensions: int | None = None  # of dense vectors trained to be shortened
    task: str = ""  # "": scores; a pooling task of the engine's, or one of ``TokenTask``
    role: str = "document"  # query | document: which of the model's prompts a text gets
    normalize: bool | None = None  # None: as the checkpoint does
    priority: str = "interactive"  # interactive | batch, behind all interactive work
    return_tokens: bool = False  # the names of the token ids that the answer speaks of
    explain: bool = False  # computed afresh, and the reply says why each pair has its score
    ranking: SyncRanking | None = None

    def to_json(self) -> dict[str, Any]:
        return {**_told(self), **({"ranking": _told(self.ranking)} if self.ranking else {})}

    def kept(self) -> dict[str, Any]:
        """What a stored request says of them: ``options`` as they were, but of texts only that they were given."""
        told = {name: value for name, value in _told(self).items() if name != "ranking"}
        texts = [name for name in ("instruction", "template", "labels") if told.pop(name, None)]
        return {**({"options": told} if told else {}), **({"texts_not_kept": texts} if texts else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        known: Any = cls
        if unknown := data.keys() - _defaults(known).keys():
            raise PayloadError(
                f"The request asks for {', '.join(sorted(unknown))}, which this worker's release does not know. "
                "Bring the worker to the release of the web server."
            )
        ranking = data.get("ranking")
        return cls(**{**data, "ranking": SyncRanking(**_understood(SyncRanking, ranking)) if ranking else None})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """``sent`` and ``deadline`` are on Redis's clock (seconds), the one clock that both sides can read; ``queue`` is
    where it was sent. Either side of the pairs is texts or token ids; the other list is then empty."""

    reply_key: str
    model_id: str
    model_name: str
    queries: list[str]
    documents: list[str]
    pairing: str  # matrix | pairwise
    deadline: float
    sent: float = 0.0
    queue: str = ""
    query_ids: list[list[int]] = field(default_factory=list)
    document_ids: list[list[int]] = field(default_factory=list)
    cache_salt: str = ""  # whose request it is: only those of one salt share what a generative model keeps of prompts
    request_id: str = ""
    options: SyncOptions = field(default_factory=SyncOptions)
    version: int = PAYLOAD_VERSION

    def to_json(self) -> dict[str, Any]:
        return {**_told(self), "options": self.options.to_json(), "version": self.version}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        _check_version(cls, data)
        options = SyncOptions.from_json(data.get("options", {}))
        return cls(**{**_understood(cls, data), "options": options})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLabels:
    labels: list[str]
    token_ids: list[list[int]]
    probabilities: list[list[float | None]]  # [P, K]
    logprobs: list[list[float | None]]  # [P, K]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRow:
    """Token ids that a model reads in one go. ``role``: query | document | prompt, where both are in it."""

    role: str
    token_ids: list[int]
    tokens: list[str] = field(default_factory=list)  # their names, if asked for

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**_understood(cls, data))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPooledText:
    """What one text became; what the task does not give is empty. E dimensions, n tokens, k token ids, K labels."""

    vector: str = ""  # [E]
    token_vectors: str = ""  # [n, E]
    classes: str = ""  # [K]
    token_classes: str = ""  # [n, K]
    token_ids: list[int] = field(default_factory=list)  # n, or of a sparse vector k
    tokens: list[str] = field(default_factory=list)  # their names, if asked for
    weights: str = ""  # of a sparse vector, [k]
    spans: list[list[Any]] = field(default_factory=list)  # of a token classifier: label, score, start, end
    rows: list[SyncRow] = field(default_factory=list)  # tokenize
    text: str = ""  # detokenize

    def to_json(self) -> dict[str, Any]:
        return {**_told(self), **({"rows": [_told(row) for row in self.rows]} if self.rows else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**_understood(cls, data), "rows": [SyncRow.from_json(row) for row in data.get("rows", ())]})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTokenRow:
    """What the model read in one go, n tokens. ``role``: query | document | prompt, where both are in it; ``uses``:
    text | prefix | special | expansion | skipped."""

    role: str
    token_ids: list[int]
    texts: list[str]
    uses: list[str]

    @property
    def tokens(self) -> list[tuple[str, str]]:
        return list(zip(self.texts, self.uses, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMatches:
    """MaxSim of m query tokens and d document tokens; the places are in their rows."""

    similarities: str  # [m, d]
    query_places: list[int]  # m
    document_places: list[int]  # d
    best: list[int]  # m, among the d
    contributions: list[float | None]  # m


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTerm:
    token_id: int
    text: str
    query_weight: float
    document_weight: float
    product: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPart:
    """``name``: dense | tokens | sparse."""

    name: str
    weight: float
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncExplanation:
    """Why one pair has its score; what does not apply to the kind of model is empty."""

    rows: list[SyncTokenRow] = field(default_factory=list)
    parts: list[SyncPart] = field(default_factory=list)
    matches: SyncMatches | None = None
    terms: list[SyncTerm] = field(default_factory=list)
    cut_query: str = ""  # the ends of the texts that there was no room for
    cut_document: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        matches = data.get("matches")
        return cls(
            rows=[SyncTokenRow(**_understood(SyncTokenRow, row)) for row in data.get("rows", ())],
            parts=[SyncPart(**_understood(SyncPart, part)) for part in data.get("parts", ())],
            matches=SyncMatches(**_understood(SyncMatches, matches)) if matches else None,
            terms=[SyncTerm(**_understood(SyncTerm, term)) for term in data.get("terms", ())],
            cut_query=data.get("cut_query", ""),
            cut_document=data.get("cut_document", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """Per-pair lists are in the order submitted: query-major for a matrix. ``error_code`` set: nothing else is."""

    error_code: str = ""
    error_message: str = ""
    scores: list[float | None] = field(default_factory=list)
    raw_scores: list[float | None] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)  # pair index (JSON keys are text) -> code
    truncated_tokens: list[int] = field(default_factory=list)
    query_truncated_tokens: list[int] = field(default_factory=list)
    labels: SyncLabels | None = None
    pooled: list[SyncPooledText] = field(default_factory=list)
    pooled_labels: list[str] = field(default_factory=list)  # K names
    explanations: list[SyncExplanation] = field(default_factory=list)  # P, if asked for and the model can say why
    best_windows: list[list[int]] | None = None  # chunk_max: [start, end] in each pair's document
    positions: list[int] = field(default_factory=list)  # of a stored set: which document each pair is of, best first
    scored: int | None = None  # pairs that got a score, those left out by top_n among them; None: all are here
    scale: str = ""
    prompt_tokens: int = 0
    query_tokens: int = 0  # those of prompt_tokens that the queries needed by themselves, whatever the documents
    cached_documents: int = 0
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds: queue, tokenise, forward, maxsim, total
    backend: str = ""
    fallback: str | None = None
    dtype: str = ""
    revision: str = ""
    worker: str = ""
    version: int = PAYLOAD_VERSION

    def to_json(self) -> dict[str, Any]:
        labels = {"labels": asdict(self.labels)} if self.labels else {}
        pooled = {"pooled": [text.to_json() for text in self.pooled]} if self.pooled else {}
        why = {"explanations": [asdict(each) for each in self.explanations]} if self.explanations else {}
        return {**_told(self), **labels, **pooled, **why, "version": self.version}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """A refusal is read whatever its version: it may be about the version."""
        if code := data.get("error_code"):
            return cls(error_code=str(code), error_message=str(data.get("error_message", "")))
        _check_version(cls, data)
        labels = data.get("labels")
        told = SyncLabels(**_understood(SyncLabels, labels)) if labels else None
        pooled = [SyncPooledText.from_json(text) for text in data.get("pooled", ())]
        why = [SyncExplanation.from_json(each) for each in data.get("explanations", ())]
        return cls(**{**_understood(cls, data), "labels": told, "pooled": pooled, "explanations": why})
