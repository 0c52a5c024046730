"""The nouns that cross the engine's border: what a caller hands in and what comes back.

Shapes: Q queries, D documents, P pairs, K labels. With ``Pairing.MATRIX`` the P = Q * D pairs are query-major (pair ``q
* D + d``); with ``Pairing.PAIRWISE`` Q = D = P and pair ``i`` is query ``i`` with document ``i``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workers.engine.errors import EngineError
from workers.engine.explanation_types import PairExplanation
from workers.engine.model_types import Scale

if TYPE_CHECKING:
    from workers.engine.caches.cached_encoding import CacheKey


class ItemStatus(IntEnum):
    """One byte per pair; the names (lower case) are what people see."""

    OK = 0
    TRUNCATED = 1
    EMPTY = 2
    FAILED = 3


class Priority(IntEnum):
    INTERACTIVE = 0
    BATCH = 1


class Pairing(StrEnum):
    MATRIX = "matrix"
    PAIRWISE = "pairwise"


class Truncation(StrEnum):
    """What happens to texts longer than the model's limit: cut and flagged, or the request is refused."""

    DOCUMENT = "document"
    ERROR = "error"


class LongDocuments(StrEnum):
    """Scoring of documents that the model has no room for: their beginning, or the best of windows over all of it."""

    TRUNCATE = "truncate"
    CHUNK_MAX = "chunk_max"


class PoolingTask(StrEnum):
    """What becomes of one text: a vector, label shares, or one of either for every token."""

    EMBED = "embed"
    CLASSIFY = "classify"
    TOKEN_EMBED = "token_embed"
    TOKEN_CLASSIFY = "token_classify"
    EMBED_AND_TOKEN_CLASSIFY = "embed&token_classify"


class TextRole(StrEnum):
    """Which prompt, marker or length a model gives to a text."""

    QUERY = "query"
    DOCUMENT = "document"


def _name_choices(given: Any, **choices: type[StrEnum]) -> None:
    """Plain strings become the choices that they name, so that ``"chunk_max"`` is as good as the member."""
    for name, kind in choices.items():
        value = getattr(given, name)
        try:
            object.__setattr__(given, name, kind(value))
        except ValueError as error:
            raise EngineError(
                "unknown_choice", f"{name} is {value!r}, which is none of {', '.join(kind)}. Give one of these."
            ) from error


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    max_tokens_per_query: int | None = None
    max_tokens_per_document: int | None = None
    max_tokens: int | None = None  # of a whole pair, its template included: cross-encoders and generative models
    truncation: Truncation = Truncation.DOCUMENT
    instruction: str = ""  # cross-encoders, listwise and prompted encoders that take one; else refused
    use_activation: bool = True  # cross-encoders; False: the score is the raw logit
    dimensions: int | None = None  # bi-encoders trained for it (Matryoshka): the first so many of the vector
    labels: tuple[str, ...] = ()  # generative: overrides the model's labels
    label_token_ids: tuple[int | tuple[int, ...], ...] = ()  # generative: overrides ``labels``
    apply_softmax: bool = True  # over the labels only; False: probabilities over the whole vocabulary
    item_first: bool = False
    template: str = ""
    add_special_tokens: bool = True  # generative: to a query given as text beside documents given as token ids
    long_documents: LongDocuments = LongDocuments.TRUNCATE
    chunk_overlap: int = 64  # tokens that a window shares with the one before; at most half of a window

    def __post_init__(self) -> None:
        _name_choices(self, truncation=Truncation, long_documents=LongDocuments)


@dataclass(frozen=True, slots=True)
class PackedList:
    """Documents that an ``EncodingRequest`` packed under ``key``. ``count`` of them are scored: those at the places
    ``chosen``, by default all."""

    key: str
    count: int
    chosen: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """``packed`` stands in place of ``documents``: they are scored without their texts, and without encoding them.

    Generative models also take token ids: ``query_ids`` in place of ``queries``, ``document_ids`` of ``documents``.
    Query and document are then joined as they are, without a template."""

    model: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    pairing: Pairing = Pairing.MATRIX
    priority: Priority = Priority.INTERACTIVE
    deadline: float | None = None  # time.monotonic(); work not started by then is dropped
    cancelled: threading.Event | None = None  # seen between micro-batches
    options: ScoringOptions = field(default_factory=ScoringOptions)
    query_ids: tuple[tuple[int, ...], ...] = ()
    document_ids: tuple[tuple[int, ...], ...] = ()
    cache_salt: str = ""  # generative: only requests of one salt share the prefixes that are kept between requests
    progressed: Callable[[], object] | None = None  # called after every micro-batch that had a part of it; never blocks
    packed: PackedList | None = None
    explain: bool = False  # computed afresh, and ``ScoringOutput.explanations`` says why; for a few pairs

    def __post_init__(self) -> None:
        _name_choices(self, pairing=Pairing)

    @property
    def query_count(self) -> int:
        return len(self.query_ids or self.queries)

    @property
    def document_count(self) -> int:
        return self.packed.count if self.packed else len(self.document_ids or self.documents)


@dataclass(frozen=True, slots=True)
class LabelScores:
    """Generative scoring: every label's share, not only the first one's."""

    labels: tuple[str, ...]  # K
    token_ids: tuple[tuple[int, ...], ...]  # K, one or more ids each
    probabilities: npt.NDArray[np.float32]  # [P, K]
    logprobs: npt.NDArray[np.float32]  # [P, K]


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds."""

    queue: float
    tokenise: float
    forward: float
    maxsim: float
    total: float


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    """Scores in the order submitted. A failed or empty pair has NaN here and its reason in ``status`` / ``errors``."""

    scores: npt.NDArray[np.float32]  # [P], activated
    raw_scores: npt.NDArray[np.float32]  # [P], what ranking uses
    status: npt.NDArray[np.uint8]  # [P], ItemStatus; TRUNCATED if either side was cut, the counts below say which
    truncated_tokens: npt.NDArray[np.int32]  # [P], tokens cut from the document
    query_truncated_tokens: npt.NDArray[np.int32]  # [Q]
    errors: dict[int, str]  # pair index -> code, such as "non_finite_score"
    labels: LabelScores | None
    scale: Scale
    prompt_tokens: int  # each query and document counted once per encoding it needed; generative: whole prompts
    cached_documents: int  # of long ones each window
    timings: Timings
    backend: str  # "cpu", "cuda", "cuda+cpu-maxsim"
    fallback: str | None  # why the wanted GPU MaxSim did not run
    dtype: str
    revision: str
    query_tokens: int = 0  # those of prompt_tokens that encoding the queries by themselves needed
    blocks: npt.NDArray[np.int32] | None = None  # [P], listwise: pairs of one number were read together; -1: not read
    best_windows: npt.NDArray[np.int32] | None = None  # [P, 2], chunk_max: where in the document the score is from
    explanations: tuple[PairExplanation, ...] | None = None  # P, of chunk_max of the best window


@dataclass(frozen=True, slots=True)
class PoolingOptions:
    max_tokens: int | None = None
    truncation: Truncation = Truncation.DOCUMENT
    dimensions: int | None = None  # Matryoshka
    normalize: bool | None = None  # None: as the checkpoint does
    use_activation: bool = True  # classification: shares; False: logits

    def __post_init__(self) -> None:
        _name_choices(self, truncation=Truncation)


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """One task over N texts, each by itself; what each gives depends on the task and the model.

    ``input_ids`` in place of ``inputs``: N rows of token ids that are read as they are, with no control token or prompt
    around them; for dense vectors and classes of whole texts only."""

    model: str
    inputs: tuple[str, ...]
    task: PoolingTask
    role: TextRole = TextRole.DOCUMENT
    priority: Priority = Priority.INTERACTIVE
    deadline: float | None = None  # time.monotonic()
    cancelled: threading.Event | None = None
    options: PoolingOptions = field(default_factory=PoolingOptions)
    input_ids: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        _name_choices(self, task=PoolingTask, role=TextRole)

    @property
    def input_count(self) -> int:
        return len(self.input_ids or self.inputs)


@dataclass(frozen=True, slots=True)
class EncodingRequest:
    """Documents to be encoded before anybody asks for their scores: they fill the cache, and no vector comes back.

    ``pack_as``: they are also kept as one packed list of that name, for requests that name it as their ``packed``."""

    model: str
    documents: tuple[str, ...]
    priority: Priority = Priority.BATCH
    deadline: float | None = None  # time.monotonic()
    cancelled: threading.Event | None = None
    options: ScoringOptions = field(default_factory=ScoringOptions)  # the limit as scoring will give it
    pack_as: str = ""


@dataclass(frozen=True, slots=True)
class EncodingOutput:
    """Counts of distinct texts."""

    encoded: int
    cached: int  # nothing was to be done
    empty: int
    prompt_tokens: int
    bytes: int  # of all their encodings, as they are kept
    key: CacheKey  # under which they are kept, without a digest
    timings: Timings


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring tokens of one label."""

    label: str
    score: float  # the mean of their shares
    start: int  # characters of the text as it was sent
    end: int


@dataclass(frozen=True, slots=True)
class PooledText:
    """What one text became; the fields that the task does not give are None. n tokens, E dimensions, K labels."""

    status: ItemStatus
    token_ids: tuple[int, ...] = ()  # n, those that the token fields below speak of
    truncated_tokens: int = 0
    vector: npt.NDArray[np.float32] | None = None  # [E]
    token_vectors: npt.NDArray[np.float32] | None = None  # [n, E]
    sparse: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None = None  # token ids and weights, both [k]
    classes: npt.NDArray[np.float32] | None = None  # [K]
    token_classes: npt.NDArray[np.float32] | None = None  # [n, K]
    spans: tuple[Span, ...] = ()  # token classifiers, from the shares


@dataclass(frozen=True, slots=True)
class PoolingOutput:
    data: tuple[PooledText, ...]  # N, in the order submitted
    errors: dict[int, str]
    labels: tuple[str, ...]  # K, classification only
    prompt_tokens: int
    timings: Timings
    backend: str
    dtype: str
    revision: str
