"""jina-colbert-v2's layout: an XLM-RoBERTa with rotary positions and fused projections, which the hub runs with code of
its own. The reference is its published formula in float64, over the weights under their published names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer

from tests.engine.tiny import unigram
from workers.engine import (
    Engine,
    EngineConfig,
    ModelKind,
    ModelSpec,
    PoolingRequest,
    PoolingTask,
    ScoringRequest,
    TextRole,
)

WIDTH, HEADS, LAYERS, OUT, BASE = 32, 4, 2, 8, 500.0
QUERIES = ("the river rose", "what is honey")
DOCUMENTS = ("Bees gather nectar from flowers, and dry it.", "the river", "A query is a question in few words.")
Vectors = npt.NDArray[np.float64]


def weights(vocabulary: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = {
        "linear": (OUT, WIDTH),
        "roberta.embeddings.word_embeddings": (vocabulary, WIDTH),
        "roberta.embeddings.token_type_embeddings": (1, WIDTH),
        "roberta.emb_ln": (WIDTH,),
    }
    for layer in (f"roberta.encoder.layers.{i}." for i in range(LAYERS)):
        shapes |= {f"{layer}mixer.Wqkv": (3 * WIDTH, WIDTH), f"{layer}mixer.out_proj": (WIDTH, WIDTH)}
        shapes |= {f"{layer}mlp.fc1": (64, WIDTH), f"{layer}mlp.fc2": (WIDTH, 64)}
        shapes |= {f"{layer}norm1": (WIDTH,), f"{layer}norm2": (WIDTH,)}
    found = {}
    for name, shape in shapes.items():
        centre = 1.0 if len(shape) == 1 else 0.0
        found[f"{name}.weight"] = centre + torch.randn(shape, generator=generator) * 0.3
        if "embeddings" not in name and name != "linear":
            found[f"{name}.bias"] = torch.randn(shape[0], generator=generator) * 0.3
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rotary")
    tokenizer = unigram()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[QueryMarker]", "[DocumentMarker]"]})
    tokenizer.save_pretrained(folder)
    save_file(weights(len(tokenizer)), folder / "model.safetensors", metadata={"format": "pt"})
    own_code = "jinaai/xlm-roberta-flash-implementation--"
    config = {
        "architectures": ["HF_ColBERT"], "model_type": "xlm-roberta", "position_embedding_type": "rotary",
        "auto_map": {"AutoConfig": f"{own_code}configuration_xlm_roberta.XLMRobertaFlashConfig"},
        "rotary_emb_base": BASE, "vocab_size": len(tokenizer), "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": 64, "hidden_act": "gelu", "max_position_embeddings": 66,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "emb_pooler": None, "use_flash_attn": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    metadata = {
        "query_token_id": "[QueryMarker]", "doc_token_id": "[DocumentMarker]", "query_maxlen": 14, "doc_maxlen": 40,
        "mask_punctuation": True, "attend_to_mask_tokens": True, "similarity": "cosine",
    }  # fmt: skip
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


def reference(ids: tuple[int, ...], parameters: dict[str, Tensor]) -> Vectors:
    """Post-norm layers, one projection for queries, keys and values, rotation by halves."""
    p = {name.removeprefix("roberta."): tensor.double() for name, tensor in parameters.items()}

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    half = WIDTH // HEADS // 2
    angles = torch.outer(torch.arange(len(ids)).double(), BASE ** (-torch.arange(half).double() / half))  # [T, D / 2]
    cos, sin = angles.cos(), angles.sin()

    def rotated(x: Tensor) -> Tensor:  # [H, T, D]
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    x = norm(p["embeddings.word_embeddings.weight"][list(ids)] + p["embeddings.token_type_embeddings.weight"], "emb_ln")
    for i in range(LAYERS):
        layer = f"encoder.layers.{i}"
        projected = linear(x, f"{layer}.mixer.Wqkv").view(len(ids), 3, HEADS, -1).permute(1, 2, 0, 3)
        query, key, value = projected  # [H, T, D]
        shares = (rotated(query) @ rotated(key).transpose(1, 2) / (2 * half) ** 0.5).softmax(dim=-1)
        attended = (shares @ value).transpose(0, 1).reshape(len(ids), WIDTH)
        x = norm(x + linear(attended, f"{layer}.mixer.out_proj"), f"{layer}.norm1")
        x = norm(x + linear(F.gelu(linear(x, f"{layer}.mlp.fc1")), f"{layer}.mlp.fc2"), f"{layer}.norm2")
    vectors: Vectors = F.normalize(F.linear(x, p["linear.weight"]), dim=-1).numpy()
    return vectors


def test_token_vectors_and_scores_are_those_of_the_published_formula(folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    info = engine.load(ModelSpec("m", folder, ModelKind.LATE_INTERACTION, dtype="float32"))
    assert (info.execution, info.max_length) == ("packed", 40)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    parameters = weights(len(tokenizer))
    names = ("<mask>", "[QueryMarker]", "[DocumentMarker]")
    mask, *marks = [tokenizer.convert_tokens_to_ids(name) for name in names]
    sides: list[list[Vectors]] = []
    for role, texts in ((TextRole.QUERY, QUERIES), (TextRole.DOCUMENT, DOCUMENTS)):
        found = engine.submit_pooling(PoolingRequest("m", texts, PoolingTask.TOKEN_EMBED, role=role)).result(60).data
        sides.append([])
        for text, ours in zip(texts, found, strict=True):
            first, *rest = tokenizer(text)["input_ids"]
            ids = [first, marks[role is TextRole.DOCUMENT], *rest]
            kept = list(range(len(ids)))
            if role is TextRole.QUERY:
                ids += [mask] * (14 - len(ids))
                kept = list(range(14))
            else:
                kept = [i for i in kept if tokenizer.convert_ids_to_tokens(ids[i]) not in (",", ".")]
            assert ours.token_ids == tuple(ids[i] for i in kept)
            sides[-1].append(reference(tuple(ids), parameters)[kept])
            assert ours.token_vectors is not None
            np.testing.assert_allclose(ours.token_vectors, sides[-1][-1], rtol=0, atol=1e-5)
    expected = [[(query @ document.T).max(axis=1).sum() for document in sides[1]] for query in sides[0]]
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores
    np.testing.assert_allclose(scores.reshape(2, -1), expected, rtol=0, atol=1e-4)
    engine.close()
