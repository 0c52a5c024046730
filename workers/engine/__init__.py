"""The scoring engine: plain Python, torch and transformers; it knows no web framework, no database and no queue.

How a request becomes scores, and which file does what::

    Engine.submit            engine.py            finds the model, admits the request, returns a future
      prepare                pooling_runner.py    distinct texts, cache look-ups, token ids        (preprocess threads)
                             pair_runner.py       distinct pairs, placed by pair_layout.py
                             label_scoring.py     prompts, shared prefixes
                             listwise_runner.py   blocks of passages read together (listwise_prompt.py)
        texts to ids         tokenizer.py         control tokens never come from a text
        prompts              templates.py         only the item is ever cut
      wait                   scheduler.py         fair shares of a token budget, interactive first
      run                    runner_thread.py     one micro-batch after the other                  (the runner thread)
        lay on one row       packed_batch.py      PackedBatch, the one object that crosses layers
        forward              model_runner.py      packed, or padded where a load-time probe says so
          attention          attention.py         pieces of the row never see each other
        texts to encodings   recipe.py            a checkpoint's layout, poolers, weights, read by its family
                             sentence_folder.py, colbert_folder.py, hybrid.py,
                             sparse.py, classification.py (own_head.py and heads.py run heads apart)
        head                 heads.py             of pairs: pooled states to one raw score, in float32
        MaxSim               late_interaction.py  reserved queries against each document as it is encoded
                             maxsim.py            one GEMM, maximum per document, sum per query
        encodings kept       embedding_cache.py   by content, within a byte budget; encoding.py says what is kept
      finish                 pair_scores.py       the parts of two encodings to one score          (postprocess thread)
                             outputs.py, pooling_output.py, spans.py   order submitted, per-item status, timings

    Engine.load              loading.py           folder to model (weights.py, gguf.py, pickled_weights.py);
                                                  kinds.py is the table of kinds, architectures.py of
                                                  architectures
                             rerankers.py         which cross-encoder a checkpoint is; chat_roles.py, activations.py
                             detection.py         which kind a folder holds
    Engine.self_test         self_test.py         what a model must show before it is served

Shapes, everywhere: T tokens on the row, N sequences, H heads, D head dim, E hidden, V vocabulary, K labels; Q queries,
D documents and P pairs at the border (``types.py``, ``model_types.py``, which import without torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers.engine.config import EngineConfig
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.model_types import ModelInfo, ModelKind, ModelSpec, Scale, SelfTestReport
from workers.engine.statistics import EngineStatistics
from workers.engine.types import (
    ItemStatus,
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
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStatistics",
    "ItemStatus",
    "ModelInfo",
    "ModelKind",
    "ModelSpec",
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
