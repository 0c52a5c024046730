"""What the engine must know about an architecture and cannot read from its code. A new one is a row here; the load-time
probe decides whether it runs packed."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GenericForSequenceClassification

# Their learned positions begin behind the padding index, and the table has that many rows more than a text may have
# tokens.
_POSITIONS_AFTER_PADDING = frozenset({
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "xmod", "data2vec-text", "ibert",
    "longformer", "mpnet",
})  # fmt: skip


def position_offset(config: PretrainedConfig) -> int:
    """The position id of a text's first token."""
    if config.model_type in _POSITIONS_AFTER_PADDING:
        padding: Any = config.pad_token_id
        return int(padding) + 1
    return 0


def position_limit(config: PretrainedConfig) -> int | None:
    """The most tokens that a text may have; None where the architecture has no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    return None if positions is None else int(positions) - position_offset(config)


def final_softcap(config: PretrainedConfig) -> float | None:
    """The bound that logits are bent towards behind the head (Gemma 2); None where they are taken as they are."""
    cap = getattr(config, "final_logit_softcapping", None)
    return float(cap) if cap else None


def is_causal(model: PreTrainedModel) -> bool:
    """Whether a token sees only those before it: decoders with their head, unless made bidirectional."""
    decoder = isinstance(model, GenericForSequenceClassification) or type(model).__name__.endswith("ForCausalLM")
    return decoder and getattr(model.config, "is_causal", True) is not False
