"""Long documents by their best window: equal to scoring the windows as documents of their own, for every kind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from tests.engine.inside import record_rows, task_of
from tests.engine.test_generative import TEMPLATE
from tests.engine.tiny import CORPUS
from tests.engine.tiny_pairs import build_cross_encoder
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    LongDocuments,
    ModelKind,
    ModelSpec,
    Pairing,
    RequestCancelled,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
)
from workers.engine.long_documents import split_documents

SHORT = "The river rose after a night of rain."
LONG = " ".join(CORPUS[:4] * 3)
QUERIES = ("rain on the river", "how do bees make honey from the nectar that they gather in flowers, and where", "no")
KINDS = ("bi", "late", "judge", "cross")


@pytest.fixture(scope="module")
def engine(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("bi", tiny_folders["roberta"], ModelKind.BI_ENCODER, max_length=40))
    engine.load(ModelSpec("late", tiny_folders["xlm-roberta"], ModelKind.LATE_INTERACTION, max_length=60))
    engine.load(ModelSpec("judge", tiny_folders["qwen3"], ModelKind.GENERATIVE, template=TEMPLATE, max_length=130))
    cross_folder = build_cross_encoder("bert", tmp_path_factory.mktemp("cross"))
    engine.load(ModelSpec("cross", cross_folder, ModelKind.CROSS_ENCODER, max_length=60))
    yield engine
    engine.close()


def score(
    engine: Engine,
    model: str,
    queries: tuple[str, ...],
    documents: tuple[str, ...],
    pairing: Pairing = Pairing.MATRIX,
    **options: Any,
) -> ScoringOutput:
    request = ScoringRequest(model, queries, documents, pairing, options=ScoringOptions(**options))
    return engine.submit(request).result(60)


def by_chunks(*args: Any, **options: Any) -> ScoringOutput:
    return score(*args, long_documents=LongDocuments.CHUNK_MAX, **options)


def windows_of(engine: Engine, model: str, query: str, document: str, **options: Any) -> list[tuple[int, int]]:
    """The windows as the engine cuts them."""
    options["long_documents"] = LongDocuments.CHUNK_MAX
    request = ScoringRequest(model, (query,), (document,), options=ScoringOptions(**options))
    split = split_documents(request, task_of(engine, model), check_wanted=lambda: None)
    assert split is not None
    places = [(start, end) for start, end in split.places.tolist()]
    assert split.request.documents == tuple(document[start:end] for start, end in places)
    return places


@pytest.mark.parametrize("model", KINDS)
def test_the_best_window_is_the_document_s_score(engine: Engine, model: str) -> None:
    for query in QUERIES[:2]:
        windows = windows_of(engine, model, query, LONG, chunk_overlap=8)
        parts = tuple(LONG[start:end] for start, end in windows)
        assert len(parts) > 3 and windows[0][0] == 0 and windows[-1][1] == len(LONG)
        assert all(a < c < b < d for (a, b), (c, d) in itertools.pairwise(windows))  # they overlap
        alone = score(engine, model, (query,), parts)
        assert alone.status.tolist() == [ItemStatus.OK] * len(parts)  # every window fits
        best = int(alone.raw_scores.argmax())
        output = by_chunks(engine, model, (query,), (LONG,), chunk_overlap=8)
        np.testing.assert_allclose(output.raw_scores, alone.raw_scores[best : best + 1], rtol=0, atol=2e-5)
        np.testing.assert_allclose(output.scores, alone.scores[best : best + 1], rtol=0, atol=2e-5)
        assert output.best_windows is not None and output.best_windows.tolist() == [list(windows[best])]
        assert output.status[0] == ItemStatus.OK and output.truncated_tokens[0] == 0
        cut = score(engine, model, (query,), (LONG,))
        assert cut.status[0] == ItemStatus.TRUNCATED and cut.best_windows is None
        if alone.labels is not None and output.labels is not None:
            np.testing.assert_allclose(output.labels.logprobs[0], alone.labels.logprobs[best], rtol=0, atol=2e-5)


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("pairing", list(Pairing))
def test_many_pairs_are_each_as_alone(engine: Engine, model: str, pairing: Pairing) -> None:
    """With duplicates, empty ones and short ones between; both pairings."""
    documents = (LONG, "", SHORT, LONG, "  \n", LONG[::-1])
    queries = QUERIES if pairing is Pairing.MATRIX else (*QUERIES, QUERIES[0], QUERIES[1], QUERIES[1])
    output = by_chunks(engine, model, queries, documents, pairing)
    places = [(q, d) for q in range(3) for d in range(6)] if pairing is Pairing.MATRIX else [(i, i) for i in range(6)]
    assert output.best_windows is not None and output.best_windows.shape == (len(places), 2)
    assert output.query_truncated_tokens.tolist() == [0] * len(queries)
    for pair, (q, d) in enumerate(places):
        alone = by_chunks(engine, model, (queries[q],), (documents[d],))
        assert alone.best_windows is not None
        np.testing.assert_allclose(output.raw_scores[pair], alone.raw_scores[0], rtol=0, atol=2e-5)
        assert output.status[pair] == alone.status[0]
        assert output.best_windows[pair].tolist() == alone.best_windows[0].tolist()
        if not documents[d].strip():
            assert output.status[pair] == ItemStatus.EMPTY and np.isnan(output.scores[pair])


@pytest.mark.parametrize("model", KINDS)
def test_one_window_is_the_whole_document(engine: Engine, model: str) -> None:
    """Also at the very limit: what truncation would leave whole is not split."""
    words = LONG.split()
    exact = next(
        text
        for count in range(len(words), 0, -1)
        if score(engine, model, QUERIES[:1], (text := " ".join(words[:count]),)).status[0] == ItemStatus.OK
    )
    documents = (SHORT, exact)
    whole, chunked = score(engine, model, QUERIES[:1], documents), by_chunks(engine, model, QUERIES[:1], documents)
    np.testing.assert_allclose(chunked.raw_scores, whole.raw_scores, rtol=0, atol=2e-5)
    assert chunked.best_windows is not None
    assert chunked.best_windows.tolist() == [[0, len(SHORT)], [0, len(exact)]]
    assert chunked.status.tolist() == whole.status.tolist() == [ItemStatus.OK] * 2


@pytest.mark.parametrize("model", KINDS)
def test_limits_of_the_request_are_limits_of_a_window(engine: Engine, model: str) -> None:
    windows = windows_of(engine, model, QUERIES[0], SHORT, max_tokens_per_document=5, chunk_overlap=0)
    parts = tuple(SHORT[start:end] for start, end in windows)
    output = score(engine, model, QUERIES[:1], parts, max_tokens_per_document=5)
    assert len(parts) > 1 and output.truncated_tokens.tolist() == [0] * len(parts)
    assert "".join(parts).replace(" ", "") == SHORT.replace(" ", "")


def test_any_overlap_ends(engine: Engine) -> None:
    """One as long as a window and longer still moves on by half."""
    windows = windows_of(engine, "bi", QUERIES[0], LONG, chunk_overlap=10**6)
    assert 3 < len(windows) < 40 and windows[-1][1] == len(LONG)
    with pytest.raises(EngineError, match="overlap") as caught:
        by_chunks(engine, "bi", QUERIES[:1], (LONG,), chunk_overlap=-1)
    assert caught.value.code == "bad_limit"


def test_texts_whose_tokens_change_with_the_cut(engine: Engine) -> None:
    """One word of 4,000 characters, characters of several tokens: every window still fits."""
    for model in KINDS:
        for text in ("riverbed" * 500, "ü日本語🌧" * 60, "0123456789abcdef" * 100):
            windows = windows_of(engine, model, QUERIES[0], text)
            parts = tuple(text[start:end] for start, end in windows)
            output = score(engine, model, QUERIES[:1], parts)
            assert not (output.status == ItemStatus.TRUNCATED).any()
            assert len(parts) > 1 or model in (
                "late",
                "cross",
            )  # their tokenizers make one unknown token of a whole word
            assert windows[0][0] == 0 and windows[-1][1] == len(text)
            assert all(c <= b for (_, b), (c, _) in itertools.pairwise(windows))


def test_no_room_is_said_as_without_windows(engine: Engine) -> None:
    output = by_chunks(engine, "judge", ("river " * 200, QUERIES[0]), (LONG,))
    assert output.errors == {0: "prompt_too_long"} and output.status.tolist() == [ItemStatus.FAILED, ItemStatus.OK]


def test_token_ids_are_split_too(engine: Engine, tiny_folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folders["qwen3"])
    query, document = (tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (QUERIES[0], LONG))
    rows = record_rows(engine, "judge")
    options = ScoringOptions(long_documents=LongDocuments.CHUNK_MAX, label_token_ids=(5, 6), chunk_overlap=10)
    request = ScoringRequest("judge", (), (), options=options, query_ids=(query,), document_ids=(document,))
    output = engine.submit(request).result(60)
    assert output.best_windows is not None and output.status[0] == ItemStatus.OK
    start, end = output.best_windows[0].tolist()
    room = 130 - len(query)
    assert end - start == room or end == len(document)
    assert output.prompt_tokens > len(document) and rows
    alone = ScoringRequest(
        "judge",
        (),
        (),
        options=ScoringOptions(label_token_ids=(5, 6)),
        query_ids=(query,),
        document_ids=(document[start:end],),
    )
    np.testing.assert_allclose(engine.submit(alone).result(60).raw_scores, output.raw_scores, rtol=0, atol=2e-5)


def test_an_answer_behind_the_limit_is_found(minilm: Engine) -> None:
    answer = "Honey bees dry the nectar in the hive with their wings until it has become honey."
    filler = "The committee met on Tuesday to discuss the budget of the regional railway. " * 40
    documents = (filler + answer, filler, "Bees are insects.")
    for model in ("minilm", "late"):
        queries = ("how do bees make honey",)
        cut, chunked = score(minilm, model, queries, documents), by_chunks(minilm, model, queries, documents)
        assert cut.raw_scores[0] == pytest.approx(cut.raw_scores[1], abs=1e-5)
        assert chunked.raw_scores[0] > cut.raw_scores[0] + 0.1 and chunked.best_windows is not None
        start, end = chunked.best_windows[0].tolist()
        assert answer in documents[0][start:end] and start > 0


def test_names_of_choices_are_as_good_as_the_choices(engine: Engine) -> None:
    named = score(engine, "bi", QUERIES[:1], (LONG,), "matrix", long_documents="chunk_max")  # type: ignore[arg-type]
    np.testing.assert_array_equal(named.scores, by_chunks(engine, "bi", QUERIES[:1], (LONG,)).scores)
    assert named.best_windows is not None
    with pytest.raises(EngineError, match="none of truncate, chunk_max"):
        ScoringOptions(long_documents="windows")  # type: ignore[arg-type]


class LeavesAtThirdLook(threading.Event):
    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return self.looks >= 3


@pytest.mark.parametrize("pairing", Pairing)
def test_whoever_leaves_while_documents_are_cut_is_noticed(engine: Engine, pairing: Pairing) -> None:
    cancelled, options = LeavesAtThirdLook(), ScoringOptions(long_documents=LongDocuments.CHUNK_MAX)
    documents = tuple(f"{LONG} {number}" for number in range(10))
    queries = QUERIES[:1] * (1 if pairing is Pairing.MATRIX else 10)
    request = ScoringRequest("bi", queries, documents, pairing, cancelled=cancelled, options=options)
    with pytest.raises(RequestCancelled):
        engine.submit(request).result(60)
    assert cancelled.looks == 3


def test_windows_of_a_document_are_bounded(engine: Engine) -> None:
    with pytest.raises(EngineError, match="more than 1024 windows") as refusal:
        by_chunks(engine, "bi", QUERIES[:1], ("river " * 4000,), max_tokens_per_document=2, chunk_overlap=0)
    assert refusal.value.code == "too_many_windows"


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing_is_refused_by_every_kind(engine: Engine, model: str, limit: int) -> None:
    for side in ("query", "document"):
        options: dict[str, Any] = {f"max_tokens_per_{side}": limit}
        with pytest.raises(EngineError, match=f"{limit} tokens per {side} leaves nothing"):
            score(engine, model, QUERIES[:1], (SHORT,), **options)
