"""What a model is at the border: its registration, and what it turned out to be once loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class ModelKind(StrEnum):
    CROSS_ENCODER = "cross-encoder"
    BI_ENCODER = "bi-encoder"
    LATE_INTERACTION = "late-interaction"
    SPARSE = "sparse"
    HYBRID = "hybrid"
    LISTWISE = "listwise"
    CLASSIFIER = "classifier"
    GENERATIVE = "generative"


class Scale(StrEnum):
    """What a score means, so that nobody compares a cosine with a probability."""

    COSINE = "cosine"
    DOT = "dot"  # of sparse vectors, or of dense ones that are compared without normalisation
    FUSED = "fused"  # a weighted sum of several
    MAXSIM = "maxsim"
    LOGIT = "logit"  # no activation
    PROBABILITY = "probability"
    RELEVANCE = "relevance"  # as a remote engine gives it


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How to load one registered model. ``folder`` holds config, tokenizer, safetensors; or ``gguf_file``."""

    name: str
    folder: Path
    kind: ModelKind
    gguf_file: str | None = None
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16 | int8 (the linear layers, on the CPU only)
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    max_length: int | None = None  # tokens including special ones; None: the folder's own limit
    gpu_maxsim: bool = True
    template: str = ""  # generative: Jinja text with {{ query }} and {{ item }}
    labels: tuple[str, ...] = ()  # generative: the first one is the positive label
    positive_class: str = ""  # cross-encoders of two labels and more: the label whose share is the score
    weights: tuple[float, float, float] | None = None  # hybrid: dense, sparse, late interaction; None: the family's own
    golden_scores: tuple[float, ...] = ()  # of the self-test's pairs at registration; a later self-test must agree
    check_order: bool = True  # False for checkpoints with random weights: the self-test then checks numbers only
    document_cache_bytes: int | None = None  # encodings of documents kept per memory; None: the engine's budget alone

    def settled_as(self, other: ModelSpec) -> ModelSpec:
        """With those settings of ``other`` that come into force without a reload."""
        return replace(self, gpu_maxsim=other.gpu_maxsim, document_cache_bytes=other.document_cache_bytes)


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
    shorter_dimensions: tuple[int, ...] | None = None  # of its dense vectors; (): any; None: not trained for it
    measured_bytes: int = 0  # most memory taken by load and warm-up; see ``MemoryEstimate`` for what was expected

    @property
    def reads_lists(self) -> bool:
        """A document's score depends on the others of its request, their order and their number."""
        return self.kind is ModelKind.LISTWISE


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


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """A served model's scores of the self-test's pairs, now; ``agrees``: finite, and near the golden ones."""

    agrees: bool
    scores: tuple[float, ...]  # raw; not always finite
    detail: str  # one sentence with the numbers


@dataclass(frozen=True, slots=True)
class MemoryPart:
    name: str  # "weights" | "load" | "activations" | "context" | "caches"
    bytes: int
    source: str  # one sentence: where the figure comes from


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a model will take on its device at its peak, known before it is loaded."""

    device: str
    dtype: str
    parts: tuple[MemoryPart, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)
