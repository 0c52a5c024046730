"""Tiny checkpoints with random weights of the kinds that need more than a plain encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, Qwen3Config, Qwen3Model

from tests.engine.tiny import CHATML, HIDDEN, build, byte_level_bpe, save_random, wordpiece


def build_sparse(folder: Path) -> Path:
    sizes: dict[str, Any] = {"max_position_embeddings": 64, **HIDDEN}
    return save_random(lambda size: BertForMaskedLM(BertConfig(vocab_size=size, **sizes)), wordpiece(), folder)


def build_hybrid(folder: Path) -> Path:
    """An encoder with BGE-M3's two heads beside it."""
    build("xlm-roberta", folder)
    torch.manual_seed(3)
    for name, width in (("sparse_linear", 1), ("colbert_linear", 24)):
        torch.save({"weight": torch.randn(width, 32), "bias": torch.randn(width)}, folder / f"{name}.pt")
    return folder


def build_listwise(folder: Path) -> Path:
    """Qwen3 with the markers and the projector of jina-reranker-v3."""
    tokenizer = byte_level_bpe(CHATML, surround=False)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.add_tokens(["<|embed_token|>", "<|rerank_token|>"], special_tokens=True)
    sizes: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 8192, **HIDDEN}
    save_random(lambda size: Qwen3Model(Qwen3Config(vocab_size=size, **sizes)), tokenizer, folder)
    weights = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    weights |= {"projector.0.weight": torch.randn(16, 32), "projector.2.weight": torch.randn(12, 16)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["JinaForRanking"]}))
    return folder
