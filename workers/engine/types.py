"""The nouns that cross the engine's border: what a caller hands in and what comes back.

Shapes: Q queries, D documents, P pairs, K labels. With ``Pairing.MATRIX`` the P = Q * D pairs are query-major (pair ``q
* D + d``); with ``Pairing.PAIRWISE`` Q = D = P and pair ``i`` is query ``i`` with document ``i``."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt


class ModelKind(StrEnum):
    BI_ENCODER = "bi-encoder"
    LATE_INTERACTION = "late-interaction"
    GENERATIVE = "generative"


class Scale(StrEnum):
    """What a score means, so that nobody compares a cosine with a probability."""

    COSINE = "cosine"
    MAXSIM = "maxsim"
    PROBABILITY = "probability"


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


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How to load one registered model. ``folder`` holds config, tokenizer, safetensors; or ``gguf_file``."""

    name: str
    folder: Path
    kind: ModelKind
    gguf_file: str | None = None
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    max_length: int | None = None  # tokens including special ones; None: the folder's own limit
    gpu_maxsim: bool = True
    template: str = ""  # generative: Jinja text with {{ query }} and {{ item }}
    labels: tuple[str, ...] = ()  # generative: the first one is the positive label
    check_order: bool = True  # False for checkpoints with random weights: the self-test then checks numbers only


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    max_tokens_per_query: int | None = None
    max_tokens_per_document: int | None = None
    truncation: Truncation = Truncation.DOCUMENT
    labels: tuple[str, ...] = ()  # generative: overrides the model's labels
    label_token_ids: tuple[int, ...] = ()  # generative: overrides ``labels``
    apply_softmax: bool = True  # over the labels only; False: probabilities over the whole vocabulary
    item_first: bool = False
    template: str = ""


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    model: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    pairing: Pairing = Pairing.MATRIX
    priority: Priority = Priority.INTERACTIVE
    deadline: float | None = None  # time.monotonic(); work not started by then is dropped
    cancelled: threading.Event | None = None  # seen between micro-batches
    options: ScoringOptions = field(default_factory=ScoringOptions)


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
    cached_documents: int
    timings: Timings
    backend: str  # "cpu", "cuda", "cuda+cpu-maxsim"
    fallback: str | None  # why the wanted GPU MaxSim did not run
    dtype: str
    revision: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model turned out to be."""

    name: str
    kind: ModelKind
    scale: Scale
    revision: str  # content hash of the folder's files
    generation: int  # grows with every load of weights under this name
    architecture: str
    execution: str  # "packed" | "padded"
    dtype: str
    device: str
    gpu_maxsim: bool  # wanted
    maxsim_backend: str | None  # in force: "cpu" | "cuda"; None where MaxSim plays no part
    max_length: int
    weight_bytes: int
    load_seconds: float


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one process gives to the engine. Token numbers include special tokens."""

    device: str = "auto"  # for models whose own device is "auto": auto | cpu | cuda | cuda:N
    threads: int = 0  # torch's intra-operation threads; 0 leaves torch's own choice
    max_batch_tokens: int = 2048  # a CPU's GEMM is saturated well below; more only adds latency
    batch_seconds: float = 1.0  # a slow model's micro-batches are cut to about this, so that others get their turn
    max_batch_square: int = 2**20  # cap on the sum of length * attended length in one micro-batch
    document_cache_bytes: int = 2**30
    query_cache_bytes: int = 2**26
    preprocess_threads: int = 2  # per priority, so that a batch chunk never delays an interactive request's tokens
    max_waiting_requests: int = 1024  # per priority, everything submitted and not yet answered
    max_waiting_tokens: int = 8 * 2**20  # per priority, estimated from characters; a request alone is always let in
    conversion_folder: Path | None = None  # where GGUF files are kept as safetensors; needed for GGUF only


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    bytes: int
    entries: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """A snapshot; counters grow from the engine's start."""

    waiting_requests: int  # in the queue, with work not yet started
    waiting_tokens: int
    running_sequences: int  # in the micro-batch on the device now
    requests_in_flight: int  # submitted and not yet answered
    reserved_bytes: int  # query embeddings held for documents still to come
    micro_batches: int
    sequences: int
    tokens: int
    dropped: int  # cancelled or past their deadline before they finished
    overloaded: int
    failed_requests: int
    truncations: int  # texts cut
    non_finite: int  # pairs without a finite score, after the retry
    float32_retries: int
    maxsim_fallbacks: int
    label_fallbacks: int
    out_of_memory: int
    document_cache: CacheStatistics
    query_cache: CacheStatistics


@dataclass(frozen=True, slots=True)
class SelfTestCheck:
    name: str
    passed: bool
    detail: str  # one sentence with the numbers


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    passed: bool
    checks: tuple[SelfTestCheck, ...]
    golden_scores: tuple[float, ...]  # raw scores of the self-test pairs at registration


class EngineError(Exception):
    """A request or a model that cannot be served. ``code`` is for machines, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestCancelled(EngineError):
    """The client left, the job was cancelled, or the deadline passed before the work started."""
