"""Bi-encoder folders saved by sentence-transformers itself: our vectors and scores against the library's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from tokenizers import processors
from torch import nn
from transformers import (
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
)

from tests.engine.tiny import CORPUS, HIDDEN, byte_level_bpe
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ModelKind,
    ModelSpec,
    Pairing,
    PoolingOptions,
    PoolingRequest,
    PoolingTask,
    Scale,
    ScoringOptions,
    ScoringRequest,
    TextRole,
)
from workers.engine.pooling.modes import POOLING_MODES

WORDS = " ".join(CORPUS[:5]).split()
QUERIES = ("the river rose", "bees", "what is a query [like this]?")
DOCUMENTS = tuple(" ".join(WORDS[i : i + length]) for i, length in enumerate((1, 3, 9, 3, 20, 14, 30)))
TASK = "Instruct: answer it\nQuery:"
PROMPTS = {"query": "Query: ", "document": "Passage is "}
DECODER: dict[str, Any] = {"max_position_embeddings": 128, "num_key_value_heads": 2, "head_dim": 8, **HIDDEN}
ENDED = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
Vectors = npt.NDArray[np.float32]


def _ended() -> PreTrainedTokenizerFast:
    """As Qwen3-Embedding's: every text ends with the token that also pads."""
    tokenizer = byte_level_bpe(ENDED, surround=False)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", end)]
    )
    return tokenizer


def _qwen3(vocabulary: int, **changed: Any) -> PreTrainedModel:
    return Qwen3Model(Qwen3Config(vocab_size=vocabulary, **DECODER, **changed))


def _llama(vocabulary: int) -> PreTrainedModel:
    return LlamaModel(LlamaConfig(vocab_size=vocabulary, **{**DECODER, "is_causal": False}))


def _gemma3(vocabulary: int) -> PreTrainedModel:
    return Gemma3TextModel(
        Gemma3TextConfig(
            vocab_size=vocabulary,
            use_bidirectional_attention=True,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            **DECODER,
        )
    )


DECODERS: dict[str, Callable[[int], PreTrainedModel]] = {
    "qwen3-causal": _qwen3,
    "qwen3-bidirectional": lambda vocabulary: _qwen3(vocabulary, is_causal=False),
    "llama-bidirectional": _llama,
    "gemma3-bidirectional": _gemma3,
}
ARCHITECTURES = ("bert", "mpnet", "xlm-roberta", "modernbert", *DECODERS)


@pytest.fixture(scope="module")
def bodies(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = dict(tiny_folders)
    for name, make_model in DECODERS.items():
        torch.manual_seed(11)
        tokenizer = _ended()
        model = make_model(len(tokenizer))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=0.2)
        folders[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    return folders


def save(body: Path, folder: Path, *modules: nn.Module, **settings: Any) -> SentenceTransformer:
    """Written by the library and read by it again: what is compared is the folder."""
    torch.manual_seed(3)
    chain = [Transformer(str(body), max_seq_length=24), *modules]
    SentenceTransformer(modules=chain, device="cpu", **settings).save_pretrained(str(folder), create_model_card=False)
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def load(folder: Path) -> Engine:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("m", folder, ModelKind.BI_ENCODER, dtype="float32"))
    return engine


def vectors(engine: Engine, texts: tuple[str, ...], role: TextRole, **options: Any) -> Vectors:
    request = PoolingRequest("m", texts, PoolingTask.EMBED, role=role, options=PoolingOptions(**options))
    return np.stack([text.vector for text in engine.submit_pooling(request).result(60).data if text.vector is not None])


def check(library: SentenceTransformer, folder: Path, tolerance: float = 1e-4) -> None:
    """Vectors and scores, queries and documents."""
    engine = load(folder)
    queries, documents = library.encode_query(list(QUERIES)), library.encode_document(list(DOCUMENTS))
    np.testing.assert_allclose(vectors(engine, QUERIES, TextRole.QUERY), queries, rtol=0, atol=tolerance)
    np.testing.assert_allclose(vectors(engine, DOCUMENTS, TextRole.DOCUMENT), documents, rtol=0, atol=tolerance)
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores
    expected = library.similarity(queries, documents).numpy().ravel()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=tolerance)
    alone = engine.submit(ScoringRequest("m", QUERIES[::-1][:1], DOCUMENTS[4:5], Pairing.PAIRWISE)).result(60).scores
    np.testing.assert_allclose(alone, scores.reshape(3, -1)[2, 4:5], rtol=0, atol=1e-5)
    engine.close()


@pytest.mark.parametrize("mode", POOLING_MODES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_pooling_of_every_architecture(
    bodies: dict[str, Path], tmp_path: Path, architecture: str, mode: str
) -> None:
    check(save(bodies[architecture], tmp_path, Pooling(32, mode), prompts=PROMPTS), tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_execution_is_packed_where_attention_allows_it(bodies: dict[str, Path], architecture: str) -> None:
    engine = load(bodies[architecture])
    assert engine.models()["m"].execution == ("padded" if architecture == "mpnet" else "packed")
    engine.close()


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3"])
def test_a_bidirectional_model_sees_what_follows(bodies: dict[str, Path], tmp_path: Path, architecture: str) -> None:
    """The first token's vector hangs on the last word; in the causal model it does not."""
    body = bodies[f"{architecture}-bidirectional"]
    save(body, tmp_path, Pooling(32, "cls"))
    engine = load(tmp_path)
    first, second = vectors(engine, ("the river rose", "the river fell"), TextRole.DOCUMENT)
    assert np.abs(first - second).max() > 1e-3
    engine.close()


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "mpnet"])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_pooling_without_the_prompt(bodies: dict[str, Path], tmp_path: Path, architecture: str, mode: str) -> None:
    pooling = Pooling(32, mode, include_prompt=False)
    check(save(bodies[architecture], tmp_path, pooling, Normalize(), prompts=PROMPTS), tmp_path)


def test_several_modes_are_joined_and_pass_a_chain(bodies: dict[str, Path], tmp_path: Path) -> None:
    library = save(
        bodies["bert"],
        tmp_path,
        Pooling(32, ("mean", "cls", "max")),
        Dense(96, 24, bias=False, activation_function=nn.Identity()),
        LayerNorm(24),
        Dense(24, 24, activation_function=nn.GELU(), use_residual=True),
        Dense(24, 16, use_residual=True),
        Normalize(),
    )
    check(library, tmp_path)


@pytest.mark.parametrize("name", ["Tanh", "ReLU", "SiLU", "Sigmoid", "Mish"])
def test_activations_behind_a_dense_module(bodies: dict[str, Path], tmp_path: Path, name: str) -> None:
    check(save(bodies["bert"], tmp_path, Pooling(32), Dense(32, 8, activation_function=getattr(nn, name)())), tmp_path)


def test_a_folder_without_modules_is_pooled_by_the_mean(bodies: dict[str, Path]) -> None:
    check(SentenceTransformer(str(bodies["modernbert"]), device="cpu"), bodies["modernbert"])


def test_the_transformer_may_lie_in_a_folder_of_its_own(bodies: dict[str, Path], tmp_path: Path) -> None:
    """As the first versions of the library wrote it, with their names for modules, lengths and modes."""
    torch.manual_seed(3)
    Transformer(str(bodies["bert"])).save(str(tmp_path / "0_Transformer"))
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").unlink()
    limit = {"max_seq_length": 12, "do_lower_case": False}
    (tmp_path / "0_Transformer" / "sentence_roberta_config.json").write_text(json.dumps(limit))
    (tmp_path / "1_Pooling").mkdir()
    legacy = {"word_embedding_dimension": 32, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(legacy))
    chain = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(("Transformer", "Pooling"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(chain))
    check(SentenceTransformer(str(tmp_path), device="cpu"), tmp_path)


def test_texts_are_lower_cased_where_the_folder_says_so(bodies: dict[str, Path], tmp_path: Path) -> None:
    save(bodies["modernbert"], tmp_path, Pooling(32))
    config = tmp_path / "sentence_bert_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "do_lower_case": True}))
    check(SentenceTransformer(str(tmp_path), device="cpu"), tmp_path)
    engine = load(tmp_path)
    upper, lower = vectors(engine, ("The RIVER rose", "the river rose"), TextRole.DOCUMENT)
    np.testing.assert_array_equal(upper, lower)
    engine.close()


def test_dot_products_keep_the_length_of_the_vectors(bodies: dict[str, Path], tmp_path: Path) -> None:
    library = save(bodies["bert"], tmp_path, Pooling(32), similarity_fn_name="dot")
    check(library, tmp_path, tolerance=1e-3)
    engine = load(tmp_path)
    assert engine.models()["m"].scale is Scale.DOT
    assert np.abs(engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores).max() > 1.5
    options = ScoringOptions(dimensions=7)
    short = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS, options=options)).result(60).scores
    expected = library.encode_query(list(QUERIES))[:, :7] @ library.encode_document(list(DOCUMENTS))[:, :7].T
    np.testing.assert_allclose(short, expected.ravel(), rtol=0, atol=1e-3)
    engine.close()


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_distances_are_refused(bodies: dict[str, Path], tmp_path: Path, name: str) -> None:
    save(bodies["bert"], tmp_path, Pooling(32), similarity_fn_name=name)
    with pytest.raises(EngineError, match=f"by '{name}'; supported are cosine and dot"):
        load(tmp_path)


@pytest.mark.parametrize("normalised", [True, False])
def test_fewer_dimensions_are_those_of_the_library(bodies: dict[str, Path], tmp_path: Path, normalised: bool) -> None:
    """Of a folder that normalises, the shortened vectors are of length one again."""
    library = save(bodies["bert"], tmp_path, Pooling(32), *([Normalize()] if normalised else []))
    expected = library.encode_document(list(DOCUMENTS), truncate_dim=9, normalize_embeddings=normalised)
    engine = load(tmp_path)
    np.testing.assert_allclose(vectors(engine, DOCUMENTS, TextRole.DOCUMENT, dimensions=9), expected, atol=1e-5)
    unit = library.encode_document(list(DOCUMENTS), normalize_embeddings=True)
    np.testing.assert_allclose(vectors(engine, DOCUMENTS, TextRole.DOCUMENT, normalize=True), unit, atol=1e-5)
    engine.close()


def test_a_folder_may_shorten_its_vectors_itself(bodies: dict[str, Path], tmp_path: Path) -> None:
    check(save(bodies["bert"], tmp_path, Pooling(32), Normalize(), truncate_dim=10), tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "xlm-roberta", "qwen3-causal"])
def test_prompt_and_text_are_one_string(bodies: dict[str, Path], tmp_path: Path, architecture: str) -> None:
    """Cut at the whole's limit; a prompt may hold control tokens and end in the middle of a word."""
    control = {"bert": "[SEP]", "xlm-roberta": "</s>", "qwen3-causal": "<|im_end|>"}[architecture]
    for place, query in enumerate(("title", "query:", f"a {control}river ", "Instruct: one\nQuery: ")):
        folder = tmp_path / str(place)
        library = save(bodies[architecture], folder, Pooling(32, "lasttoken"), prompts={"query": query})
        check(library, folder)


def test_control_tokens_in_a_text_stay_text_behind_a_prompt(bodies: dict[str, Path], tmp_path: Path) -> None:
    library = save(bodies["bert"], tmp_path, Pooling(32), prompts={"query": "[SEP] query "})
    engine = load(tmp_path)
    ours = vectors(engine, ("the [SEP] river",), TextRole.QUERY)
    assert np.abs(ours - library.encode_query(["the [SEP] river"])).max() > 1e-2
    np.testing.assert_allclose(ours, library.encode_query(["the [ SEP ] river"]), atol=1e-5)
    engine.close()


def test_truncation_is_counted_behind_a_prompt(bodies: dict[str, Path], tmp_path: Path) -> None:
    save(bodies["bert"], tmp_path, Pooling(32), prompts=PROMPTS)
    engine = load(tmp_path)
    text = "the " * 30
    output = engine.submit(ScoringRequest("m", (text,), (text,))).result(60)
    tokenizer = SentenceTransformer(str(tmp_path), device="cpu").tokenizer
    for prompt, cut in (
        (PROMPTS["query"], output.query_truncated_tokens[0]),
        (PROMPTS["document"], output.truncated_tokens[0]),
    ):
        assert cut == len(tokenizer(prompt + text)["input_ids"]) - 24
    engine.close()


def test_an_instruction_takes_the_place_of_the_prompts_own(bodies: dict[str, Path], tmp_path: Path) -> None:
    library = save(bodies["qwen3-causal"], tmp_path, Pooling(32, "lasttoken"), prompts={"query": TASK})
    engine = load(tmp_path)
    prompt = "Instruct: like these\nQuery:"
    options = ScoringOptions(instruction="like these")
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS, options=options)).result(60).scores
    queries = library.encode(list(QUERIES), prompt=prompt)
    expected = library.similarity(queries, library.encode_document(list(DOCUMENTS))).numpy().ravel()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-4)
    own = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60)
    assert np.abs(own.scores - scores).max() > 1e-3  # no query's vector came from the cache, and every document's did
    assert own.cached_documents == len(DOCUMENTS)
    huge = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS, options=ScoringOptions(instruction="the " * 99)))
    with pytest.raises(EngineError, match="shorter instruction"):
        huge.result(60)
    engine.close()


def test_a_prompt_that_leaves_no_room_is_refused_at_once(bodies: dict[str, Path], tmp_path: Path) -> None:
    save(bodies["bert"], tmp_path, Pooling(32), prompts={"document": "the " * 22})
    with pytest.raises(EngineError, match="document's prompt leaves no room for a text: the model takes 22 tokens"):
        load(tmp_path)


def test_an_instruction_without_a_place_is_refused(bodies: dict[str, Path], tmp_path: Path) -> None:
    save(bodies["bert"], tmp_path, Pooling(32), prompts=PROMPTS)
    engine = load(tmp_path)
    options = ScoringOptions(instruction="Find answers")
    with pytest.raises(EngineError, match="no place for an instruction"):
        engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS, options=options)).result(60)
    engine.close()


def _without_weights(folder: Path) -> None:
    next(folder.glob("*_Dense/model.safetensors")).unlink()


def _rename(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "modules.json"
        path.write_text(path.read_text().replace(old, new))

    return change


def _other_activation(folder: Path) -> None:
    path = next(folder.glob("*_Dense/config.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "activation_function": "custom.Swish"}))


def _configure(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "sentence_bert_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_without_weights, "lacks linear.bias, linear.weight"),
        (_rename("dense.Dense", "router.Router"), "is a Router, which is not supported here. Supported are Dense"),
        (_rename("sentence_transformers.base.modules.dense", "custom_code"), "is a custom_code.Dense, which is not"),
        (_rename("transformer.Transformer", "clip.CLIPModel"), "begins with CLIPModel"),
        (_rename("pooling.Pooling", "weights.WordWeights"), "has a WordWeights behind its transformer"),
        (_other_activation, "the activation 'custom.Swish'"),
        (_configure(transformer_task="fill-mask"), "more than text to last hidden states"),
        (_configure(processing_kwargs={"text": {"truncation_side": "left"}}), "more than text to last hidden states"),
    ],
)
def test_a_folder_that_cannot_be_followed_says_what_it_lacks(
    bodies: dict[str, Path], tmp_path: Path, change: Callable[[Path], None], sentence: str
) -> None:
    save(bodies["bert"], tmp_path, Pooling(32), Dense(32, 8))
    change(tmp_path)
    with pytest.raises(EngineError, match=sentence):
        load(tmp_path)
