"""Checkpoints with random weights, small enough to build in a moment: one folder per architecture, as save_pretrained
leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

CORPUS = [
    "The river rose after a night of rain, and the bridge was closed until the water fell again.",
    "Bees gather nectar from flowers; they dry it in the hive with their wings until it is honey.",
    "A query is a question in few words. A passage is a piece of text that may answer it.",
    "Numbers such as 1, 22, 333 and 4096 are split into digits, brackets [like these] and <those> too.",
    "user assistant system Query Passage Answer Does the passage answer the query?\nyes\nno\nyes\nno",
] * 8
HIDDEN: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WORDPIECE = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
CHATML = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}


def wordpiece() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(WORDPIECE.values())
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    return _surrounded(tokenizer, "[CLS]", "[SEP]", WORDPIECE)


def byte_level_bpe(special: dict[str, str], *, surround: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=list(dict.fromkeys(special.values())),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if surround:
        return _surrounded(tokenizer, special["bos_token"], special["eos_token"], special)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def unigram() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = list(ROBERTA.values())
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _surrounded(tokenizer, "<s>", "</s>", ROBERTA)


def _surrounded(tokenizer: Tokenizer, first: str, last: str, special: dict[str, str]) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B {last}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _bert(vocabulary: int) -> PreTrainedModel:
    return BertModel(BertConfig(vocab_size=vocabulary, max_position_embeddings=64, **HIDDEN))


def _mpnet(vocabulary: int) -> PreTrainedModel:
    return MPNetModel(MPNetConfig(vocab_size=vocabulary, max_position_embeddings=66, pad_token_id=0, **HIDDEN))


def _roberta(vocabulary: int) -> PreTrainedModel:
    return RobertaModel(RobertaConfig(vocab_size=vocabulary, max_position_embeddings=66, pad_token_id=1, **HIDDEN))


def _xlm_roberta(vocabulary: int) -> PreTrainedModel:
    config = XLMRobertaConfig(vocab_size=vocabulary, max_position_embeddings=66, pad_token_id=1, **HIDDEN)
    return XLMRobertaModel(config)


def _modernbert(vocabulary: int) -> PreTrainedModel:
    config = ModernBertConfig(
        vocab_size=vocabulary,
        max_position_embeddings=64,
        local_attention=8,
        layer_types=["full_attention", "sliding_attention"],
        pad_token_id=1,
        **HIDDEN,
    )
    return ModernBertModel(config)


def _llama(vocabulary: int) -> PreTrainedModel:
    config = LlamaConfig(vocab_size=vocabulary, max_position_embeddings=512, num_key_value_heads=2, **HIDDEN)
    return LlamaForCausalLM(config)


def _qwen3(vocabulary: int) -> PreTrainedModel:
    config = Qwen3Config(
        vocab_size=vocabulary,
        max_position_embeddings=512,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
        **HIDDEN,
    )
    return Qwen3ForCausalLM(config)


def _gemma2(vocabulary: int) -> PreTrainedModel:
    config = Gemma2Config(
        vocab_size=vocabulary,
        max_position_embeddings=512,
        num_key_value_heads=2,
        head_dim=8,
        final_logit_softcapping=2.0,
        **HIDDEN,
    )
    return Gemma2ForCausalLM(config)


def _gemma3(vocabulary: int) -> PreTrainedModel:
    config = Gemma3TextConfig(
        vocab_size=vocabulary,
        max_position_embeddings=512,
        num_key_value_heads=2,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        **HIDDEN,
    )
    return Gemma3ForCausalLM(config)


def _lfm2(vocabulary: int) -> PreTrainedModel:
    config = Lfm2Config(
        vocab_size=vocabulary,
        max_position_embeddings=512,
        num_key_value_heads=2,
        layer_types=["conv", "full_attention"],
        block_auto_adjust_ff_dim=False,
        **HIDDEN,
    )
    return Lfm2ForCausalLM(config)


BUILDERS: dict[str, tuple[Callable[[int], PreTrainedModel], Callable[[], PreTrainedTokenizerFast]]] = {
    "bert": (_bert, wordpiece),
    "mpnet": (_mpnet, wordpiece),
    "roberta": (_roberta, lambda: byte_level_bpe(ROBERTA, surround=True)),
    "xlm-roberta": (_xlm_roberta, unigram),
    "modernbert": (_modernbert, lambda: byte_level_bpe(ROBERTA, surround=True)),
    "llama": (_llama, lambda: byte_level_bpe(CHATML, surround=False)),
    "qwen3": (_qwen3, lambda: byte_level_bpe(CHATML, surround=False)),
    "gemma2": (_gemma2, lambda: byte_level_bpe(CHATML, surround=False)),
    "gemma3": (_gemma3, lambda: byte_level_bpe(CHATML, surround=False)),
    "lfm2": (_lfm2, lambda: byte_level_bpe(CHATML, surround=False)),
}
ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert", "mpnet")
# Gemma 2 and LFM2 cap attention and mix tokens outside it: padded.
GENERATIVE = ("llama", "qwen3", "gemma3", "gemma2", "lfm2")


def build(architecture: str, folder: Path) -> Path:
    """Write the checkpoint; weights are spread wide, so that tokens that see each other differ visibly."""
    make_model, make_tokenizer = BUILDERS[architecture]
    return save_random(make_model, make_tokenizer(), folder)


def save_random(make_model: Callable[[int], PreTrainedModel], tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    torch.manual_seed(7)
    model = make_model(len(tokenizer))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
