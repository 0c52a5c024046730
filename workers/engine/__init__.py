"""The scoring engine: plain Python, torch and transformers; it knows no web framework, no database and no queue.

How a request becomes scores, and which file does what::

    Engine.submit            engine.py            finds the model, admits the request, returns a future
      prepare                pooling_runner.py    distinct texts, cache look-ups, token ids        (preprocess threads)
                             pair_runner.py       distinct pairs, placed by pair_layout.py
                             label_scoring.py     prompts, labels
                             listwise_runner.py   blocks of passages read together (listwise_prompt.py)
        long documents       long_documents.py    windows in their place; the best one's score is folded back
        texts to ids         tokenizer.py         control tokens never come from a text
        prompts              prompts.py           from texts by templates.py, or from token ids; only the item is cut
        labels               labels.py            strings to the token ids they are behind the prompt
        shared prefixes      prompt_row.py        chains of what prompts begin with, long prompts in parts
      wait                   scheduler.py         fair shares of a token budget, interactive first
      run                    runner_thread.py     one micro-batch after the other                  (the runner thread)
        lay on one row       packed_batch.py      PackedBatch, the one object that crosses layers
        forward              model_runner.py      packed, or padded where a load-time probe says so
          attention          attention.py         pieces of the row never see each other
          prefixes kept      kept_prefix.py       keys and values between micro-batches and requests
        texts to encodings   recipe.py            a checkpoint's layout, poolers, weights, read by its family
                             sentence_folder.py, colbert_folder.py, hybrid.py,
                             sparse.py, classification.py (own_head.py and heads.py run heads apart)
          as folders say     sentence_modules.py   modules behind the transformer; pooling_modes.py
                             late_settings.py      markers, lengths, expansion; marked_layout.py puts them around
                             text_prompts.py       prompt and text as one string
        head                 heads.py             of pairs: pooled states to one raw score, in float32
        MaxSim               late_interaction.py  reserved queries against each document as it is encoded
                             maxsim.py            products by the block, maximum per document, sum per query
                             scattered_maxsim.py  over documents where a cache has them
        encodings kept       embedding_cache.py   by content, in tiers with byte budgets; compression.py
                             disk_tier.py         over a restart, in segment_files.py
      finish                 pair_scores.py       the parts of two encodings to one score          (postprocess thread)
                             outputs.py, pooling_output.py, spans.py   order submitted, per-item status, timings

    Engine.load              loading.py           folder to model (weights.py, gguf.py, pickled_weights.py);
                                                  kinds.py is the table of kinds, architectures.py of
                                                  architectures
      int8, if asked for     int8_linear.py       linear layers, each token by its own range
                             rerankers.py         which cross-encoder a checkpoint is; chat_roles.py, activations.py
                             detection.py         which kind a folder holds
    Engine.self_test         self_test.py         what a model must show before it is served (candidate.py)

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
    EncodingOutput,
    EncodingRequest,
    ItemStatus,
    LongDocuments,
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
    "EncodingOutput",
    "EncodingRequest",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStatistics",
    "ItemStatus",
    "LongDocuments",
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
