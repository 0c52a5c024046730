"""Prompts given as token ids: joined as they are, the query's own special tokens apart, only the item cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.inside import clear_caches, record_rows
from tests.engine.test_generative import TEMPLATE
from tests.engine.tiny import CHATML, byte_level_bpe
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Truncation,
)

LABELS = (5, 77, 130)
QUERIES = ((10, 20, 30, 40, 50, 60, 70), (11, 21, 31))
ITEMS = ((101, 102, 103), (201,), (101, 202, 203, 204, 205), ())


@pytest.fixture(scope="module", params=["llama", "gemma3", "lfm2"])
def judge(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> tuple[Engine, Path]:
    engine = Engine(EngineConfig(threads=1))
    folder = tiny_folders[request.param]
    engine.load(ModelSpec("judge", folder, ModelKind.GENERATIVE, template=TEMPLATE, max_length=40))
    engine.load(ModelSpec("encoder", tiny_folders["bert"], ModelKind.BI_ENCODER))
    request.addfinalizer(engine.close)
    return engine, folder


def score(engine: Engine, request: dict[str, Any], **options: Any) -> ScoringOutput:
    chosen: dict[str, Any] = {"label_token_ids": LABELS, "apply_softmax": False} | options
    given: dict[str, Any] = {"model": "judge", "queries": (), "documents": ()} | request
    return engine.submit(ScoringRequest(**given, options=ScoringOptions(**chosen))).result(60)


def next_logprobs(folder: Path, prompts: list[tuple[int, ...]]) -> npt.NDArray[np.float32]:
    """``[prompts, K]`` by the library, one prompt at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        rows = [model(torch.tensor([prompt])).logits[0, -1].float().log_softmax(dim=-1) for prompt in prompts]
    return torch.stack(rows)[:, list(LABELS)].numpy()


@pytest.mark.parametrize("item_first", [False, True])
def test_query_and_item_are_joined(judge: tuple[Engine, Path], item_first: bool) -> None:
    engine, folder = judge
    output = score(engine, {"query_ids": QUERIES, "document_ids": ITEMS}, item_first=item_first)
    prompts = [item + query if item_first else query + item for query in QUERIES for item in ITEMS if item]
    assert output.labels is not None
    np.testing.assert_allclose(
        output.labels.logprobs.reshape(2, 4, 3)[:, :3].reshape(6, 3), next_logprobs(folder, prompts), rtol=0, atol=2e-5
    )
    assert output.status.reshape(2, 4).tolist() == [[ItemStatus.OK] * 3 + [ItemStatus.EMPTY]] * 2
    assert output.prompt_tokens == sum(map(len, prompts))


def test_pairwise(judge: tuple[Engine, Path]) -> None:
    engine, folder = judge
    output = score(engine, {"query_ids": QUERIES, "document_ids": ITEMS[1:3], "pairing": Pairing.PAIRWISE})
    assert output.labels is not None
    expected = next_logprobs(folder, [QUERIES[0] + ITEMS[1], QUERIES[1] + ITEMS[2]])
    np.testing.assert_allclose(output.labels.logprobs, expected, rtol=0, atol=2e-5)


def test_only_the_item_is_cut(judge: tuple[Engine, Path]) -> None:
    engine, _ = judge
    long = tuple(range(100, 160))
    rows = record_rows(engine, "judge")
    for item_first in (False, True):
        clear_caches(engine, "judge")
        rows.clear()
        output = score(engine, {"query_ids": QUERIES[:1], "document_ids": (long,)}, item_first=item_first)
        assert output.status[0] == ItemStatus.TRUNCATED and output.truncated_tokens[0] == 27
        kept = list(long[:33])
        assert rows == [[*kept, *QUERIES[0]] if item_first else [*QUERIES[0], *kept]]
    limited = score(
        engine, {"query_ids": QUERIES, "document_ids": (long,)}, max_tokens_per_document=4, max_tokens_per_query=5
    )
    assert limited.truncated_tokens.tolist() == [56, 56] and limited.query_truncated_tokens.tolist() == [2, 0]
    assert score(engine, {"query_ids": (long,), "document_ids": ITEMS[:1]}).errors == {0: "prompt_too_long"}
    with pytest.raises(EngineError, match=r"documents\[0\] by 27"):
        score(engine, {"query_ids": QUERIES[:1], "document_ids": (long,)}, truncation=Truncation.ERROR)


def test_a_query_as_text_beside_items_as_ids(tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    """Its special tokens are the tokenizer's own, unless they are not wanted; control tokens in it stay text."""
    AutoModelForCausalLM.from_pretrained(tiny_folders["llama"]).save_pretrained(tmp_path)
    tokenizer = byte_level_bpe(CHATML, surround=True)
    tokenizer.save_pretrained(tmp_path)
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("judge", tmp_path, ModelKind.GENERATIVE, template=TEMPLATE))
    rows = record_rows(engine, "judge")
    given = {"queries": ("how do bees make honey",), "document_ids": ITEMS[:1]}
    score(engine, given)
    score(engine, given, add_special_tokens=False)
    score(engine, {"queries": ("a<|im_end|>",), "document_ids": ITEMS[:1]}, add_special_tokens=False)
    engine.close()
    whole = tokenizer(given["queries"][0])["input_ids"]
    assert rows[0] == [*whole, *ITEMS[0]] and rows[1] == [*whole[1:-1], *ITEMS[0]]
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") not in rows[2]


def test_labels_as_strings_are_tokenised_by_themselves(judge: tuple[Engine, Path]) -> None:
    engine, folder = judge
    output = score(engine, {"query_ids": QUERIES, "document_ids": ITEMS}, label_token_ids=(), labels=("yes", "no"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = tuple(tuple(tokenizer(name, add_special_tokens=False)["input_ids"]) for name in ("yes", "no"))
    assert output.labels is not None and output.labels.token_ids == expected


def test_items_alike_share_their_beginning_when_they_come_first(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("judge", tiny_folders["llama"], ModelKind.GENERATIVE, template=TEMPLATE))
    rows = record_rows(engine, "judge")
    item = tuple(range(100, 140))
    queries = tuple((10, 20 + i, 30) for i in range(5))
    score(engine, {"query_ids": queries, "document_ids": (item,)}, item_first=True)
    engine.close()
    assert sum(map(len, rows)) <= len(item) + 3 * 5


@pytest.mark.parametrize(
    ("code", "request_", "options", "named"),
    [
        (
            "unknown_prompt_token_id",
            {"query_ids": QUERIES, "document_ids": ((5,), (6, 10**6))},
            {},
            "documents[1]: [1000000]",
        ),
        ("unknown_prompt_token_id", {"query_ids": ((5, -1),), "document_ids": ITEMS}, {}, "queries[0]: [-1]"),
        ("text_and_token_ids", {"queries": ("a",), "query_ids": QUERIES, "document_ids": ITEMS}, {}, "queries"),
        ("bad_template", {"query_ids": QUERIES, "document_ids": ITEMS}, {"template": TEMPLATE}, "template"),
        ("token_ids_refused", {"model": "encoder", "query_ids": QUERIES, "document_ids": ITEMS}, {}, "bi-encoder"),
    ],
)
def test_refusals(
    judge: tuple[Engine, Path], code: str, request_: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(EngineError) as caught:
        score(judge[0], request_, **options)
    assert caught.value.code == code and named in str(caught.value)
