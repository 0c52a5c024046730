"""LLM rerankers with random weights, in the layouts of the published ones, and their vendors' published recipes as
transformers runs them: one pair at a time, the last token's logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GemmaConfig,
    GemmaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from tests.engine.tiny import CORPUS, HIDDEN
from tests.engine.tiny_pairs import spread, write_settings

ANSWERS = ["yes no Yes No 1 0\nyes\nno\nYes\nNo\n1\n0"] * 8
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN3_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)
GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
CHATML_GENERAL = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)
ROLES_TEMPLATE = (
    "{%- set told = messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first "
    "| default('" + WEB_SEARCH + "', true) -%}"
    "<|im_start|>system\n" + QWEN3_SYSTEM + "<|im_end|>\n<|im_start|>user\n<Instruct>: {{ told }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}"
)


def qwen_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def gemma_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, ["<pad>", "<eos>", "<bos>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def _train(tokenizer: Tokenizer, special: list[str]) -> None:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*CORPUS, *ANSWERS], trainer)


_DECODER: dict[str, Any] = {"num_key_value_heads": 2, "max_position_embeddings": 2048, **HIDDEN}


def build_qwen3(folder: Path) -> Path:
    """As published: causal, tied, with a general chat template that plays no part."""
    tokenizer = qwen_tokenizer()
    tokenizer.chat_template = CHATML_GENERAL
    config = Qwen3Config(vocab_size=len(tokenizer), head_dim=8, tie_word_embeddings=True, **_DECODER)
    return _save(folder, Qwen3ForCausalLM, config, tokenizer)


def build_qwen3_export(folder: Path, causal: Path) -> Path:
    """The causal checkpoint as sequence classification: one label whose row is yes minus no."""
    tokenizer = AutoTokenizer.from_pretrained(causal)
    body = AutoModelForCausalLM.from_pretrained(causal, dtype=torch.float32)
    config = Qwen3Config.from_pretrained(causal, num_labels=1, tie_word_embeddings=False)
    model = Qwen3ForSequenceClassification(config)
    model.model.load_state_dict(body.model.state_dict())
    yes, no = (body.lm_head.weight[tokenizer.convert_tokens_to_ids(answer)] for answer in ("yes", "no"))
    with torch.no_grad():
        model.score.weight.copy_((yes - no)[None])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_qwen3_roles(folder: Path) -> Path:
    """sentence-transformers' layout: a chat template with roles, and the answers' ids in ``1_LogitScore``."""
    build_qwen3(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = ROLES_TEMPLATE
    tokenizer.save_pretrained(folder)
    modules = (
        ("0", "", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1", "1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"),
    )
    rows = [{"idx": int(name), "name": name, "path": path, "type": kind} for name, path, kind in modules]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_LogitScore").mkdir()
    yes, no = (tokenizer.convert_tokens_to_ids(answer) for answer in ("yes", "no"))
    write_settings(folder / "1_LogitScore" / "config.json", true_token_id=yes, false_token_id=no)
    method = {"method": "forward", "method_output_name": "logits"}
    write_settings(
        folder / "sentence_bert_config.json",
        transformer_task="text-generation",
        modality_config={"text": method, "message": {**method, "format": "flat"}},
        module_output_name="causal_logits",
    )
    write_settings(folder / "config_sentence_transformers.json", model_type="CrossEncoder")
    return folder


def build_mxbai(folder: Path) -> Path:
    tokenizer = qwen_tokenizer()
    return _save(folder, Qwen2ForCausalLM, Qwen2Config(vocab_size=len(tokenizer), **_DECODER), tokenizer)


def build_bge_gemma(folder: Path) -> Path:
    tokenizer = gemma_tokenizer()
    ids: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    config = GemmaConfig(vocab_size=len(tokenizer), head_dim=8, **ids, **_DECODER)
    return _save(folder, GemmaForCausalLM, config, tokenizer)


def _save(folder: Path, model_class: Any, config: Any, tokenizer: PreTrainedTokenizerFast) -> Path:
    torch.manual_seed(13)
    model = model_class(config)
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "qwen3": build_qwen3,
    "qwen3-roles": build_qwen3_roles,
    "mxbai": build_mxbai,
    "bge-gemma": build_bge_gemma,
}


def qwen3_ids(tokenizer: Any, query: str, document: str, instruction: str) -> list[int]:
    start = f"<|im_start|>system\n{QWEN3_SYSTEM}<|im_end|>\n<|im_start|>user\n"
    end = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    body = f"<Instruct>: {instruction or WEB_SEARCH}\n<Query>: {query}\n<Document>: {document}"
    return [i for text in (start, body, end) for i in tokenizer.encode(text, add_special_tokens=False)]


def mxbai_ids(tokenizer: Any, query: str, document: str, instruction: str) -> list[int]:
    start = (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n"
    )
    asked = f"instruction: {instruction}\nquery: {query}" if instruction else f"query: {query}"
    parts = (start, asked, "\n", f"document: {document}", "\n", MXBAI_TASK, "<|im_end|>\n<|im_start|>assistant\n")
    return [i for text in parts for i in tokenizer.encode(text, add_special_tokens=False)]


def gemma_ids(tokenizer: Any, query: str, document: str, instruction: str) -> list[int]:
    parts = (f"A: {query}", "\n", f"B: {document}", "\n", instruction or GEMMA_TASK)
    return [tokenizer.bos_token_id, *(i for text in parts for i in tokenizer.encode(text, add_special_tokens=False))]


RECIPES: dict[str, tuple[Callable[[Any, str, str, str], list[int]], tuple[str, ...]]] = {
    "qwen3": (qwen3_ids, ("yes", "no")),
    "mxbai": (mxbai_ids, ("1", "0")),
    "bge-gemma": (gemma_ids, ("Yes",)),
}


def published_raw(name: str, folder: Path, pairs: list[tuple[str, str]], instruction: str = "") -> list[float]:
    """The first answer's logit, minus the second's where the recipe has one."""
    prompt, answers = RECIPES[name]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = [tokenizer.convert_tokens_to_ids(answer) for answer in answers]
    raw = []
    for query, document in pairs:
        with torch.inference_mode():
            logits = model(torch.tensor([prompt(tokenizer, query, document, instruction)])).logits[0, -1]
        raw.append(float(logits[ids[0]] - (logits[ids[1]] if len(ids) > 1 else 0.0)))
    return raw


def export_raw(folder: Path, pairs: list[tuple[str, str]], instruction: str = "") -> list[float]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [float(model(torch.tensor([qwen3_ids(tokenizer, *pair, instruction)])).logits[0, 0]) for pair in pairs]
