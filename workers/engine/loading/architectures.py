"""What the engine must know about an architecture and cannot read from its code. A new one is a row here; the load-time
probe decides whether it runs packed."""

from __future__ import annotations

from typing import Any

from transformers import JinaEmbeddingsV3Config, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GenericForSequenceClassification

# Their learned positions begin behind the padding index, and the table has that many rows more than a text may have
# tokens.
_POSITIONS_AFTER_PADDING = frozenset({
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "xmod", "data2vec-text", "ibert",
    "longformer", "mpnet",
})  # fmt: skip


_ROTARY_BASE = 10_000.0  # where a rotary XLM-RoBERTa does not say
_SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id",
    "architectures",
)  # fmt: skip


def known_config(config: PretrainedConfig) -> PretrainedConfig:
    """Checkpoints that came with code of their own, under the name by which transformers knows the same model.

    An XLM-RoBERTa with rotary positions (jina-colbert-v2) is the body of jina-embeddings-v3 without its adapters.
    """
    if config.model_type != "xlm-roberta" or getattr(config, "position_embedding_type", None) != "rotary":
        return config
    shared = {name: getattr(config, name) for name in _SHARED}
    base = float(getattr(config, "rotary_emb_base", _ROTARY_BASE))
    return JinaEmbeddingsV3Config(**shared, rope_parameters={"rope_type": "default", "rope_theta": base})


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
