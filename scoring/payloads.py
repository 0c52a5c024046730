"""What crosses a process border as JSON: one synchronous request and its reply.

``version`` lets web and workers of neighbouring releases refuse each other in words instead of misreading.
NaN never crosses: an item without a score carries ``None``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

PAYLOAD_VERSION = 3


class PayloadError(ValueError):
    """The other side speaks another version, or not this language at all."""


def _checked(cls: type, data: dict[str, Any]) -> dict[str, Any]:
    version = data.get("version")
    if version != PAYLOAD_VERSION:
        raise PayloadError(f"{cls.__name__} has version {version}, this process speaks version {PAYLOAD_VERSION}.")
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    max_tokens_per_query: int | None = None
    max_tokens_per_document: int | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """``deadline`` is on Redis's clock (seconds), the one clock that both sides can read. Either side of the pairs is
    texts or token ids; the other list is then empty."""

    reply_key: str
    model_id: str
    model_name: str
    queries: list[str]
    documents: list[str]
    pairing: str  # matrix | pairwise
    deadline: float
    query_ids: list[list[int]] = field(default_factory=list)
    document_ids: list[list[int]] = field(default_factory=list)
    cache_salt: str = ""  # whose request it is: only those of one salt share what a generative model keeps of prompts
    request_id: str = ""
    options: SyncOptions = field(default_factory=SyncOptions)
    version: int = PAYLOAD_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        data = _checked(cls, data)
        return cls(**{**data, "options": SyncOptions(**data["options"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLabels:
    labels: list[str]
    token_ids: list[list[int]]
    probabilities: list[list[float | None]]  # [P, K]
    logprobs: list[list[float | None]]  # [P, K]


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
    best_windows: list[list[int]] | None = None  # chunk_max: [start, end] in each pair's document
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
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        data = _checked(cls, data)
        labels = data.get("labels")
        return cls(**{**data, "labels": SyncLabels(**labels) if labels else None})
