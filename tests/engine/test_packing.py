"""Packed = padded = alone, for every architecture that is claimed: against transformers' own run of one text at a
time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from tests.engine.tiny import CORPUS, ENCODERS
from workers.engine import EngineConfig, EngineError, ModelKind, ModelSpec
from workers.engine.forward.attention import PACKED_ATTENTION, packed_attention
from workers.engine.forward.model_runner import ModelRunner
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import load_checkpoint

WORDS = " ".join(CORPUS[:5]).split()
TEXTS = [" ".join(WORDS[:count]) for count in (1, 3, 9, 3, 20, 1, 14)]


def alone(folder: Path, token_ids: list[int], *, causal: bool = False) -> torch.Tensor:
    auto = AutoModelForCausalLM if causal else AutoModel
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return (model.model if causal else model)(torch.tensor([token_ids])).last_hidden_state[0]  # [T, E]


@pytest.mark.parametrize("architecture", ENCODERS)
def test_encoder_equals_one_text_at_a_time(tiny_folders: dict[str, Path], architecture: str) -> None:
    folder = tiny_folders[architecture]
    checkpoint = load_checkpoint(ModelSpec("m", folder, ModelKind.LATE_INTERACTION), EngineConfig())
    assert checkpoint.runner.execution == ("padded" if architecture == "mpnet" else "packed")
    assert (checkpoint.runner.model.config._attn_implementation == PACKED_ATTENTION) == (architecture != "mpnet")
    ids = [tokens.ids for tokens in checkpoint.tokenizer.encode_surrounded(TEXTS, 60)]
    batch = checkpoint.runner.pack([Piece(each) for each in ids])
    parts = checkpoint.runner.forward(batch).split(batch.lengths_cpu)
    for part, each in zip(parts, ids, strict=True):
        torch.testing.assert_close(part, alone(folder, each), rtol=0, atol=2e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_causal_model_with_a_shared_prefix_equals_whole_prompts(
    tiny_folders: dict[str, Path], architecture: str
) -> None:
    folder = tiny_folders[architecture]
    checkpoint = load_checkpoint(ModelSpec("m", folder, ModelKind.GENERATIVE), EngineConfig())
    assert checkpoint.runner.execution == "packed"
    ids = [checkpoint.tokenizer.encode(text) for text in TEXTS]
    prefix, items = ids[4], [ids[0], ids[3], ids[1], ids[6]]
    pieces = [Piece(prefix), *(Piece(item, prefix=0) for item in items), Piece(ids[2])]
    batch = checkpoint.runner.pack(pieces)
    parts = checkpoint.runner.forward(batch).split(batch.lengths_cpu)
    for part, item in zip(parts[1:-1], items, strict=True):
        whole = alone(folder, prefix + item, causal=True)
        torch.testing.assert_close(part, whole[len(prefix) :], rtol=0, atol=2e-5)
    torch.testing.assert_close(parts[-1], alone(folder, ids[2], causal=True), rtol=0, atol=2e-5)


def test_a_convolution_over_tokens_is_run_padded(tiny_folders: dict[str, Path]) -> None:
    """LFM2 packs without an error and is wrong; only the probe tells."""
    folder = tiny_folders["lfm2"]
    checkpoint = load_checkpoint(ModelSpec("m", folder, ModelKind.GENERATIVE), EngineConfig())
    assert checkpoint.runner.execution == "padded"
    ids = [checkpoint.tokenizer.encode(text) for text in TEXTS]
    batch = checkpoint.runner.pack([Piece(each) for each in ids])
    for part, each in zip(checkpoint.runner.forward(batch).split(batch.lengths_cpu), ids, strict=True):
        torch.testing.assert_close(part, alone(folder, each, causal=True), rtol=0, atol=2e-5)


def test_the_borders_come_from_our_attention(tiny_folders: dict[str, Path]) -> None:
    """One piece of two texts is not two pieces: were the registered function not called, both would come out alike."""
    checkpoint = load_checkpoint(ModelSpec("m", tiny_folders["llama"], ModelKind.GENERATIVE), EngineConfig())
    first, second = (checkpoint.tokenizer.encode(text) for text in TEXTS[1:3])
    runner = checkpoint.runner
    apart = runner.forward(runner.pack([Piece(first), Piece(second)]))
    joined = runner.forward(runner.pack([Piece(first + second)]))
    assert (apart - joined)[len(first) :].abs().max() > 0.05


def test_a_leaky_model_is_run_padded(tiny_folders: dict[str, Path]) -> None:
    """A layer that shifts tokens crosses the borders of a packed row; the load-time probe sees it."""
    model = AutoModel.from_pretrained(tiny_folders["bert"], dtype=torch.float32).eval()
    model.encoder.layer[0].register_forward_hook(lambda module, args, out: out + out.roll(1, dims=1) * 0.1)
    runner = ModelRunner(model, torch.device("cpu"))
    runner.choose_execution([[2, 9, 3], [2, 8, 7, 6, 3], [2, 5, 3]], causal=False)
    assert runner.execution == "padded"
    assert model.config._attn_implementation != PACKED_ATTENTION


def test_attention_refuses_what_it_cannot_honour(tiny_folders: dict[str, Path]) -> None:
    checkpoint = load_checkpoint(ModelSpec("m", tiny_folders["bert"], ModelKind.LATE_INTERACTION), EngineConfig())
    batch = checkpoint.runner.pack([Piece([2, 5, 3])])
    query = torch.zeros(1, 4, 3, 8)
    for refused in ({"softcap": 30.0}, {"s_aux": torch.zeros(4)}, {"position_bias": torch.zeros(1)}):
        with pytest.raises(EngineError) as caught:
            packed_attention(
                torch.nn.Identity(), query, query, query, None, packed_batch=batch, is_causal=False, **refused
            )
        assert next(iter(refused)) in str(caught.value)


def test_widened_weights_give_the_float32_result(tiny_folders: dict[str, Path]) -> None:
    folder = tiny_folders["bert"]
    spec = ModelSpec("m", folder, ModelKind.LATE_INTERACTION, dtype="bfloat16")
    narrow = load_checkpoint(spec, EngineConfig()).runner
    batch = narrow.pack([Piece([2, 9, 8, 3]), Piece([2, 7, 3])])
    widened, plain = narrow.forward(batch, in_float32=True), narrow.forward(batch)
    assert widened.dtype == torch.float32 and plain.dtype == torch.bfloat16
    assert 0 < (widened - plain.float()).abs().max() < 0.2
