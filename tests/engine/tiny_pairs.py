"""Cross-encoders with random weights: one folder per architecture, as save_pretrained leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    BertForSequenceClassification,
    CamembertForSequenceClassification,
    DebertaV2ForSequenceClassification,
    DistilBertForSequenceClassification,
    ElectraForSequenceClassification,
    GemmaForSequenceClassification,
    LlamaForSequenceClassification,
    ModernBertForSequenceClassification,
    MPNetForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3ForSequenceClassification,
    RobertaForSequenceClassification,
    XLMRobertaForSequenceClassification,
)

from tests.engine.tiny import CHATML, HIDDEN, ROBERTA, WORDPIECE, byte_level_bpe, unigram, wordpiece

Tokenizers = Callable[[], PreTrainedTokenizerFast]


def typed_wordpiece() -> PreTrainedTokenizerFast:
    """BERT's pair: the second text and what closes it are of type 1."""
    backend = wordpiece().backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **WORDPIECE)


def doubled(make: Tokenizers) -> Tokenizers:
    """RoBERTa's pair: two closing tokens between the texts."""

    def build() -> PreTrainedTokenizerFast:
        tokenizer = make()
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> </s> $B </s>",
            special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")],
        )
        return tokenizer

    return build


def _bpe() -> PreTrainedTokenizerFast:
    return byte_level_bpe(ROBERTA, surround=True)


def _chat() -> PreTrainedTokenizerFast:
    return byte_level_bpe(CHATML, surround=False)


def _modernbert(pooling: str) -> dict[str, Any]:
    window = {"max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 1}
    return {"classifier_pooling": pooling, **window, **HIDDEN}


_POSITIONS = {"max_position_embeddings": 66, "pad_token_id": 1}  # learned, behind the padding index: 64 tokens
_DECODER = {"max_position_embeddings": 64, "num_key_value_heads": 2, "pad_token_id": None}
CROSS_ENCODERS: dict[str, tuple[type[PreTrainedModel], dict[str, Any], Tokenizers]] = {
    "bert": (BertForSequenceClassification, {"max_position_embeddings": 64, **HIDDEN}, typed_wordpiece),
    "roberta": (RobertaForSequenceClassification, _POSITIONS | HIDDEN, doubled(_bpe)),
    "xlm-roberta": (XLMRobertaForSequenceClassification, _POSITIONS | HIDDEN, doubled(unigram)),
    "camembert": (CamembertForSequenceClassification, _POSITIONS | HIDDEN, doubled(unigram)),
    "electra": (
        ElectraForSequenceClassification,
        {"max_position_embeddings": 64, "embedding_size": 16, **HIDDEN},
        typed_wordpiece,
    ),
    "distilbert": (
        DistilBertForSequenceClassification,
        {"max_position_embeddings": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        wordpiece,
    ),
    "modernbert-cls": (ModernBertForSequenceClassification, _modernbert("cls"), doubled(_bpe)),
    "modernbert-mean": (ModernBertForSequenceClassification, _modernbert("mean"), doubled(_bpe)),
    "deberta-v2": (
        DebertaV2ForSequenceClassification,
        {"max_position_embeddings": 64, "type_vocab_size": 0, "pooler_hidden_size": 32, "relative_attention": True,
         "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
         "position_biased_input": False, **HIDDEN},
        typed_wordpiece,
    ),
    "mpnet": (MPNetForSequenceClassification, _POSITIONS | HIDDEN, doubled(_bpe)),
    "qwen3": (Qwen3ForSequenceClassification, {"head_dim": 8, **_DECODER, **HIDDEN}, _chat),
    "llama": (LlamaForSequenceClassification, _DECODER | HIDDEN, _chat),
    "gemma": (GemmaForSequenceClassification, {"head_dim": 8, **_DECODER, **HIDDEN}, _chat),
}  # fmt: skip
PADDED = ("deberta-v2", "mpnet")


def build_cross_encoder(name: str, folder: Path, *, labels: int = 1, **settings: Any) -> Path:
    """``settings`` are written into config.json, such as an activation."""
    model_class, fields, make_tokenizer = CROSS_ENCODERS[name]
    tokenizer = make_tokenizer()
    config: Any = model_class.config_class
    torch.manual_seed(11)
    model = model_class(config(vocab_size=len(tokenizer), num_labels=labels, **fields))
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_settings(folder / "config.json", **settings)
    return folder


def spread(model: PreTrainedModel) -> None:
    """Wide weights, so that tokens that see each other, their types and their positions differ visibly."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)


def write_settings(path: Path, **settings: Any) -> None:
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | settings))
