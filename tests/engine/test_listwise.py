"""jina-reranker-v3 against its published recipe, run with transformers on a tiny checkpoint of that layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen3Config, Qwen3Model

from tests.engine.inside import body_of, record_rows
from tests.engine.tiny import CHATML, HIDDEN, byte_level_bpe, save_random
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    PoolingRequest,
    PoolingTask,
    Scale,
    ScoringOptions,
    ScoringRequest,
    Truncation,
)

QUERIES = ("what is honey?", "Is the bridge closed after the rain?")
DOCUMENTS = (
    "The river rose after a night of rain, and the bridge was closed until the water fell again.",
    "bees",
    "\n Numbers such as 1, 22 and 333 are split into digits.",
    "bees",
    "Honey is what bees dry in the hive with their wings.",
)
MARKERS = ("<|embed_token|>", "<|rerank_token|>")
LIMIT = 8192
Vectors = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def listwise_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the hub has it: Qwen3 under ``model.``, the projector beside it, a class that transformers does not know."""
    folder = tmp_path_factory.mktemp("listwise")
    tokenizer = byte_level_bpe(CHATML, surround=False)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.add_tokens(list(MARKERS), special_tokens=True)
    tokenizer.model_max_length = 131072
    sizes: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": LIMIT, **HIDDEN}
    save_random(lambda size: Qwen3Model(Qwen3Config(vocab_size=size, **sizes)), tokenizer, folder)
    torch.manual_seed(5)
    tensors = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors |= {"projector.0.weight": torch.randn(16, 32), "projector.2.weight": torch.randn(12, 16)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["JinaForRanking"], "auto_map": {"AutoModel": "modeling.JinaForRanking"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def engine(listwise_folder: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("list", listwise_folder, ModelKind.LISTWISE, dtype="float32"))
    engine.load(ModelSpec("short", listwise_folder, ModelKind.LISTWISE, dtype="float32", max_length=1800))
    yield engine
    engine.close()


class Recipe:
    """The published way: one prompt string per block, the checkpoint's own tokenizer, one block at a time."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        config = Qwen3Config.from_pretrained(folder)
        self.model = Qwen3Model(config).eval()
        self.model.load_state_dict(
            {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        )
        self.projector = [tensors["projector.0.weight"], tensors["projector.2.weight"]]

    def block(self, query: str, documents: list[str], instruction: str = "") -> tuple[Vectors, Vectors]:
        lines = [f'<passage id="{i}">\n{text}{MARKERS[0]}\n</passage>' for i, text in enumerate(documents)]
        prompt = (
            "<|im_start|>system\nYou are a search relevance expert who can determine a ranking of the passages based "
            "on how relevant they are to the query. If the query is a question, how relevant a passage is depends on "
            "how well it answers the question. If not, try to analyze the intent of the query and assess how well each "
            "passage satisfies the intent. If an instruction is provided, you should follow the instruction when "
            "determining the ranking.<|im_end|>\n<|im_start|>user\n"
            f"I will provide you with {len(documents)} passages, each indicated by a numerical identifier. Rank the "
            f"passages based on their relevance to query: {query}\n"
            + (f"<instruct>\n{instruction}\n</instruct>\n" if instruction else "")
            + "\n".join(lines)
            + f"\n<query>\n{query}{MARKERS[1]}\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        ids = self.tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            hidden = self.model(ids).last_hidden_state[0]
            states = hidden @ self.projector[0].T
            states = states.relu() @ self.projector[1].T
        marks = [ids[0] == self.tokenizer.convert_tokens_to_ids(marker) for marker in MARKERS]
        assert marks[0].sum() == len(documents) and marks[1].sum() == 1
        return states[marks[0]].numpy(), states[marks[1]][0].numpy()

    def scores(self, query: str, blocks: list[list[str]], instruction: str = "") -> Vectors:
        encoded = [self.block(query, documents, instruction) for documents in blocks]
        weights = [((1 + cosine(documents, own)) / 2).max() for documents, own in encoded]
        mean = np.average([own for _, own in encoded], axis=0, weights=weights)
        return cosine(np.concatenate([documents for documents, _ in encoded]), mean)

    def split(self, query: str, documents: list[str], max_length: int, max_document: int) -> list[int]:
        """The number of documents in each block."""
        length = [len(self.tokenizer(text)["input_ids"]) for text in (query, *documents)]
        counts, capacity = [0], max_length - 2 * length[0]
        for tokens in length[1:]:
            counts[-1] += 1
            capacity -= tokens
            if counts[-1] >= 125 or capacity <= max_document:
                counts.append(0)
                capacity = max_length - 2 * length[0]
        return [count for count in counts if count]


def cosine(documents: Vectors, query: Vectors) -> Vectors:
    result: Vectors = documents @ query / (np.linalg.norm(documents, axis=1) * np.linalg.norm(query))
    return result


@pytest.fixture(scope="module")
def recipe(listwise_folder: Path) -> Recipe:
    return Recipe(listwise_folder)


@pytest.mark.parametrize("instruction", ["", "Prefer passages about bees."])
def test_scores_equal_the_published_recipe(engine: Engine, recipe: Recipe, instruction: str) -> None:
    options = ScoringOptions(instruction=instruction)
    output = engine.submit(ScoringRequest("list", QUERIES, DOCUMENTS, options=options)).result(60)
    expected = [recipe.scores(query, [list(DOCUMENTS)], instruction) for query in QUERIES]
    np.testing.assert_allclose(output.scores.reshape(2, -1), expected, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(output.blocks, np.repeat([0, 1], 5))
    assert output.scale is Scale.COSINE and engine.models()["list"].reads_lists
    assert output.scores[1] != output.scores[3]  # equal texts in other places: read after other neighbours


def test_a_list_of_more_than_125_is_split_and_rescored_against_the_mean(engine: Engine, recipe: Recipe) -> None:
    documents = [f"{DOCUMENTS[i % 5].strip()} {i}" for i in range(130)]
    query = QUERIES[0]
    request = ScoringRequest("list", (query,), tuple(documents), options=ScoringOptions(max_tokens_per_document=16))
    output = engine.submit(request).result(60)
    assert recipe.split(query, documents, 131072, 16) == [125, 5]
    np.testing.assert_array_equal(output.blocks, np.repeat([0, 1], [125, 5]))
    ids = [recipe.tokenizer(text)["input_ids"] for text in documents]
    cut = [recipe.tokenizer.decode(own[:16]) for own in ids]
    np.testing.assert_array_equal(output.truncated_tokens, [max(0, len(own) - 16) for own in ids])
    expected = recipe.scores(query, [cut[:125], cut[125:]])
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-4)


def test_a_block_closes_by_tokens_as_the_recipe_does(engine: Engine, recipe: Recipe) -> None:
    documents = [" ".join([text] * 30) for text in ("bees dry honey", "rain fell", "a night of rain", "wings")] * 4
    request = ScoringRequest(
        "short", QUERIES[:1], tuple(documents), options=ScoringOptions(max_tokens_per_document=700)
    )
    output = engine.submit(request).result(60)
    counts = recipe.split(QUERIES[0], documents, 1800, 700)
    assert len(counts) > 1
    np.testing.assert_array_equal(output.blocks, np.repeat(range(len(counts)), counts))
    borders = np.cumsum([0, *counts])
    blocks = [documents[a:b] for a, b in pairwise(borders)]
    np.testing.assert_allclose(output.scores, recipe.scores(QUERIES[0], blocks), rtol=0, atol=1e-4)


def test_no_prompt_is_too_long_and_no_marker_lost(engine: Engine, recipe: Recipe) -> None:
    """Where the recipe's count, which leaves the words around the passages out, would let a block overflow."""
    documents = tuple(f"{i} " * (5 if i % 7 else 3000) for i in range(60))
    rows = record_rows(engine, "short")
    output = engine.submit(ScoringRequest("short", QUERIES[:1], documents)).result(60)
    assert np.isfinite(output.scores).all() and output.blocks is not None
    assert [ItemStatus(s) for s in output.status] == [
        ItemStatus.OK if i % 7 else ItemStatus.TRUNCATED for i in range(60)
    ]
    prompts = split_prompts(rows, recipe)
    assert len(prompts) == output.blocks.max() + 1
    assert max(map(len, prompts)) <= 1800
    marker = recipe.tokenizer.convert_tokens_to_ids(MARKERS[0])
    assert [prompt.count(marker) for prompt in prompts] == np.bincount(output.blocks).tolist()
    tail = recipe.tokenizer("\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")["input_ids"]
    assert all(prompt[-len(tail) :] == tail for prompt in prompts)


def split_prompts(rows: list[list[int]], recipe: Recipe) -> list[list[int]]:
    """A row may hold several prompts; each begins with the system's turn."""
    first = recipe.tokenizer("<|im_start|>system\nYou")["input_ids"]
    prompts = []
    for row in rows:
        starts = [i for i in range(len(row)) if row[i : i + len(first)] == first]
        prompts += [row[a:b] for a, b in zip(starts, [*starts[1:], len(row)], strict=True)]
    return prompts


def test_control_tokens_in_texts_stay_text(engine: Engine, recipe: Recipe) -> None:
    rows = record_rows(engine, "list")
    texts = ("a <|embed_token|> b", "<|im_end|>", "<think></think>")
    output = engine.submit(ScoringRequest("list", ("<|rerank_token|> honey",), texts)).result(60)
    assert np.isfinite(output.scores).all()
    (row,) = rows
    expected = {MARKERS[0]: 3, MARKERS[1]: 1, "<|im_end|>": 2, "<think>": 1, "</think>": 1}
    assert {token: row.count(recipe.tokenizer.convert_tokens_to_ids(token)) for token in expected} == expected


def test_blank_texts_are_not_read(engine: Engine) -> None:
    whole = engine.submit(ScoringRequest("list", QUERIES[:1], DOCUMENTS)).result(60)
    output = engine.submit(ScoringRequest("list", (" ", QUERIES[0]), ("", *DOCUMENTS, "\n"))).result(60)
    empty = [True] * 7 + [True, *[False] * 5, True]
    np.testing.assert_array_equal(output.status == ItemStatus.EMPTY, empty)
    np.testing.assert_array_equal(output.scores[8:13], whole.scores)
    assert output.blocks is not None and (output.blocks[np.array(empty)] == -1).all()
    nothing = engine.submit(ScoringRequest("list", (" ",), DOCUMENTS)).result(60)
    assert (nothing.status == ItemStatus.EMPTY).all()


def test_pairs_of_one_query_are_one_list(engine: Engine) -> None:
    lists = engine.submit(ScoringRequest("list", QUERIES, DOCUMENTS)).result(60).scores.reshape(2, -1)
    queries = (QUERIES[0], QUERIES[1]) * 5
    documents = tuple(document for document in DOCUMENTS for _ in range(2))
    pairs = engine.submit(ScoringRequest("list", queries, documents, Pairing.PAIRWISE)).result(60)
    np.testing.assert_allclose(pairs.scores, lists.T.ravel(), rtol=0, atol=1e-5)


def test_l4_both_sides_say_what_they_lost(engine: Engine) -> None:
    options = ScoringOptions(max_tokens_per_query=3, max_tokens_per_document=4)
    request = ScoringRequest("list", (QUERIES[0], "bees"), (DOCUMENTS[0], "bees"), options=options)
    output = engine.submit(request).result(60)
    assert output.query_truncated_tokens[0] > 0 and output.query_truncated_tokens[1] == 0
    np.testing.assert_array_equal(output.truncated_tokens > 0, [True, False, True, False])
    cut, whole = ItemStatus.TRUNCATED, ItemStatus.OK
    np.testing.assert_array_equal(output.status, [cut, cut, cut, whole])
    refused = ScoringOptions(max_tokens_per_document=4, truncation=Truncation.ERROR)
    with pytest.raises(EngineError, match=r"documents\[0\]"):
        engine.submit(ScoringRequest("list", ("bees",), DOCUMENTS[:1], options=refused)).result(60)


def test_s8_what_is_no_number_fails_with_its_block_alone(listwise_folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("list", listwise_folder, ModelKind.LISTWISE, dtype="float32"))
    body: Any = body_of(engine, "list")
    poisoned = engine._models["list"].task._prompt._tokenizer.encode("☃")[0]  # type: ignore[attr-defined]
    body.embed_tokens.weight.data[poisoned] = float("nan")
    documents = ("bees", "☃", *[f"honey {i}" for i in range(125)])
    output = engine.submit(ScoringRequest("list", QUERIES[:1], documents)).result(60)
    failed = [True] * 125 + [False] * 2  # read together with it
    np.testing.assert_array_equal(np.isnan(output.scores), failed)
    assert set(output.errors.values()) == {"non_finite_score"} and len(output.errors) == 125
    alone = engine.submit(ScoringRequest("list", QUERIES[:1], ("☃",))).result(60)
    assert alone.errors == {0: "non_finite_score"}
    engine.close()


def test_the_self_test_says_what_it_leaves_out(listwise_folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    for dtype in ("float32", "bfloat16"):
        engine.load(ModelSpec(dtype, listwise_folder, ModelKind.LISTWISE, dtype=dtype, check_order=False))
        report = engine.self_test(dtype)
        assert report.passed, report
        assert [c.name for c in report.checks] == ["finite", "order", "repeat", "alone", "order_invariance"]
        assert all("Not checked: a listwise model" in check.detail for check in report.checks[3:])
    assert engine.models()["float32"].execution == "packed"
    engine.close()


def test_what_it_cannot_do_is_refused(engine: Engine, listwise_folder: Path, tiny_folders: dict[str, Path]) -> None:
    with pytest.raises(EngineError, match="scores pairs only"):
        engine.submit_pooling(PoolingRequest("list", ("a",), PoolingTask.EMBED)).result(60)
    with pytest.raises(EngineError, match="no passage has room"):
        options = ScoringOptions(instruction="be strict " * 2000)
        engine.submit(ScoringRequest("short", ("a",), ("b",), options=options)).result(60)
    with pytest.raises(EngineError, match="A limit of 0 tokens per document"):
        options = ScoringOptions(max_tokens_per_document=0)
        engine.submit(ScoringRequest("short", ("a",), ("b",), options=options)).result(60)
    with pytest.raises(EngineError, match="max_length is 200"):
        engine.load(ModelSpec("tiny", listwise_folder, ModelKind.LISTWISE, max_length=200))
    with pytest.raises(EngineError, match=r"has no <\|embed_token\|> and no"):
        engine.load(ModelSpec("other", tiny_folders["qwen3"], ModelKind.LISTWISE))


def test_a_folder_without_the_projector_is_refused(listwise_folder: Path, tmp_path: Path) -> None:
    for path in listwise_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["projector.2.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match=r"projector\.2\.weight") as refusal:
        engine.load(ModelSpec("list", tmp_path, ModelKind.LISTWISE))
    assert refusal.value.code == "missing_weights"
    engine.close()


def test_the_block_that_a_pair_was_read_in_is_shown(engine: Engine) -> None:
    name = next(iter(engine.models()))
    output = engine.submit(ScoringRequest(name, QUERIES[:1], DOCUMENTS, explain=True)).result(60)
    assert output.explanations is not None
    for document, why in zip(DOCUMENTS, output.explanations, strict=True):
        (row,) = why.rows
        assert row.role == "prompt" and document.strip() in "".join(row.texts) and QUERIES[0] in "".join(row.texts)
