"""The scoring engine: plain Python, torch and transformers; it knows no web framework, no database and no queue.

How a request becomes scores, and where each step is::

    Engine.submit           engine.py            finds the model, admits the request, returns a future
      long documents        long_documents.py    windows in a document's place, the best one's score folded back
      prepare               a task runner, by the table in kinds.py                           (preprocess threads)
                            pooling/runner.py    one text at a time: embeddings, MaxSim, sparse, hybrid, classes
                            pair_runner.py       cross-encoders and LLM rerankers
                            listwise_runner.py   passages read together, in blocks
                            label_scoring.py     generative: how likely is each label behind a prompt
        texts to ids        texts/               control tokens and templates; what strangers write stays text
        shared prefixes     prompt_row.py        what prompts begin with, once; long prompts in parts
      wait                  scheduler.py         fair shares of a token budget, interactive first
      run                   runner_thread.py     one micro-batch after the other              (the runner thread)
                            device_gates.py      one forward pass at a time on a device
        one row             forward/             packed_batch.py crosses the layers; model_runner.py runs the body,
                                                 steady_rows.py fills rows up, so that company changes no bit;
                                                 attention.py keeps pieces apart, kept_prefix.py keeps keys and values,
                                                 heads.py and own_head.py run what stands behind the body
        texts to encodings  pooling/recipe.py    a checkpoint's layout, poolers and weights, read by families/
        MaxSim              pooling/             late_interaction.py reserves queries for documents to come; maxsim.py,
                                                 scattered_maxsim.py, kernels/ compute it
        a list packed before    packed_documents.py, against_packed.py   queries against all of it, without texts
        encodings kept      caches/              by content: on the device, in memory, on the disk
      finish                outputs.py, pooling/output.py   order submitted, per-item status  (postprocess thread)
        why a pair scores   explanations.py, pooling/pair_explanations.py   tokens read, matches, terms; if asked for

    Engine.reader           token_reader.py      what a model reads, as token ids; nothing runs

    Engine.load             loader.py            loading, proving, measuring; a failure leaves nothing
                            loading/             checkpoint.py: folder to model; detection.py: the kind it holds;
                                                 memory_estimate.py: what a model will take
                            loaded_models.py     those that serve, and what each may keep of documents
    Engine.self_test        self_test.py         what a model must show before it is served (candidate.py)

Shapes, everywhere: T tokens on the row, N sequences, H heads, D head dim, E hidden, V vocabulary, K labels; Q queries,
D documents and P pairs at the border (``types.py``, ``model_types.py``, which import without torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers.engine.config import EngineConfig
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.model_types import (
    CanaryReport,
    MemoryEstimate,
    ModelInfo,
    ModelKind,
    ModelSpec,
    Scale,
    SelfTestReport,
)
from workers.engine.statistics import EngineStatistics
from workers.engine.types import (
    EncodingOutput,
    EncodingRequest,
    ItemStatus,
    LongDocuments,
    PackedList,
    Pairing,
    PooledText,
    PoolingOptions,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    Priority,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Span,
    TextRole,
    Truncation,
)

if TYPE_CHECKING:
    from workers.engine.engine import Engine

__all__ = [
    "CanaryReport",
    "EncodingOutput",
    "EncodingRequest",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStatistics",
    "ItemStatus",
    "LongDocuments",
    "MemoryEstimate",
    "ModelInfo",
    "ModelKind",
    "ModelSpec",
    "PackedList",
    "Pairing",
    "PooledText",
    "PoolingOptions",
    "PoolingOutput",
    "PoolingRequest",
    "PoolingTask",
    "Priority",
    "RequestCancelled",
    "Scale",
    "ScoringOptions",
    "ScoringOutput",
    "ScoringRequest",
    "SelfTestReport",
    "Span",
    "TextRole",
    "Truncation",
]


def __getattr__(name: str) -> Any:
    """``Engine`` on first use only: reading the types must not cost an import of torch."""
    if name == "Engine":
        from workers.engine.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
