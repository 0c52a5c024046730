"""Late-interaction folders in the layouts of the hub: token vectors and scores against values computed with PyLate."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.golden.checkpoints import DOCUMENTS, LAYOUTS, QUERIES, build, digest
from tests.engine.inside import record_rows
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    PooledText,
    PoolingOptions,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringRequest,
    TextRole,
)
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import load_checkpoint

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "pylate.json").read_text())["layouts"]
PADDED = ("pylate-mpnet", "pylate-lfm2")  # attention outside the interface, a convolution over tokens
UNATTENDED = [name for name in LAYOUTS if name not in ("pylate-bert", "pylate-bert-unexpanded")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {layout: build(layout, tmp_path_factory.mktemp(layout)) for layout in LAYOUTS}


def load(folder: Path, **changed: Any) -> Engine:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("m", folder, ModelKind.LATE_INTERACTION, dtype="float32", check_order=False, **changed))
    return engine


def tokens(engine: Engine, texts: tuple[str, ...], role: TextRole) -> tuple[PooledText, ...]:
    request = PoolingRequest("m", texts, PoolingTask.TOKEN_EMBED, role=role, options=PoolingOptions())
    return engine.submit_pooling(request).result(60).data


def settings(folder: Path, **changed: Any) -> None:
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_token_vectors_and_scores_are_pylates(folders: dict[str, Path], layout: str) -> None:
    golden = GOLDEN[layout]
    assert digest(folders[layout]) == golden["weights"]
    engine = load(folders[layout])
    assert engine.models()["m"].execution == ("padded" if layout in PADDED else "packed")
    for role, texts, expected in (
        (TextRole.QUERY, QUERIES, golden["queries"]),
        (TextRole.DOCUMENT, DOCUMENTS, golden["documents"]),
    ):
        for ours, theirs in zip(tokens(engine, texts, role), expected, strict=True):
            assert list(ours.token_ids) == theirs["ids"]
            assert ours.token_vectors is not None
            np.testing.assert_allclose(ours.token_vectors, theirs["vectors"], rtol=0, atol=1e-4)
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores
    np.testing.assert_allclose(scores.reshape(len(QUERIES), -1), golden["scores"], rtol=0, atol=1e-4)
    engine.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_stays_near(folders: dict[str, Path], layout: str) -> None:
    """By one per cent of a query token's highest similarity."""
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("m", folders[layout], ModelKind.LATE_INTERACTION, dtype="bfloat16"))
    scores = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores.reshape(len(QUERIES), -1)
    for ours, theirs, query in zip(scores, GOLDEN[layout]["scores"], GOLDEN[layout]["queries"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-2 * len(query["ids"]))
    engine.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_company_order_and_pairing_change_nothing(folders: dict[str, Path], layout: str) -> None:
    engine = load(folders[layout])
    report = engine.self_test("m")  # alone, together and in reverse order, each encoded afresh
    assert report.passed, report.checks
    together = engine.submit(ScoringRequest("m", QUERIES, DOCUMENTS)).result(60).scores.reshape(3, -1)
    engine.load(ModelSpec("m", folders[layout], ModelKind.LATE_INTERACTION, dtype="float32"))
    request = ScoringRequest("m", QUERIES[::-1], DOCUMENTS[2::-1], Pairing.PAIRWISE)
    np.testing.assert_allclose(engine.submit(request).result(60).scores, np.diag(together[:, :3])[::-1], atol=1e-5)
    engine.close()


@pytest.mark.parametrize("layout", UNATTENDED)
def test_expansion_tokens_look_at_the_query_and_nothing_looks_at_them(folders: dict[str, Path], layout: str) -> None:
    """Packed, padded and alone agree, whatever lies beside; the own tokens come out as without any expansion."""
    checkpoint = load_checkpoint(ModelSpec("m", folders[layout], ModelKind.LATE_INTERACTION), EngineConfig())
    runner, ids = checkpoint.runner, checkpoint.tokenizer.encode("the river rose")
    roles = checkpoint.tokenizer.roles
    filler = roles["mask_token"] if "mask_token" in roles else roles["eos_token"]
    narrow = Piece([*ids, *[filler] * 4], attended=len(ids))
    pieces = [Piece(ids), narrow, Piece(ids[:2]), Piece([*ids, *[filler] * 4]), narrow, Piece([filler] * 9)]
    batch = runner.pack(pieces)
    parts = runner.forward(batch).split(batch.lengths_cpu)
    torch.testing.assert_close(parts[1], parts[4], rtol=0, atol=1e-5)
    torch.testing.assert_close(parts[1][: len(ids)], parts[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(parts[1], runner.forward(runner.pack([narrow])), rtol=0, atol=1e-5)
    assert (parts[1] - parts[3])[len(ids) :].abs().max() > 1e-3  # where they see each other, they are others


@pytest.mark.parametrize("layout", ["stanford-bert", "pylate-bert-unattended", "pylate-modernbert", "pylate-qwen3"])
def test_packed_equals_padded(folders: dict[str, Path], layout: str) -> None:
    checkpoint = load_checkpoint(ModelSpec("m", folders[layout], ModelKind.LATE_INTERACTION), EngineConfig())
    runner, ids = checkpoint.runner, checkpoint.tokenizer.encode("the river rose after rain")
    assert runner.execution == "packed"
    pieces = [Piece([*ids, 6, 6, 6], attended=len(ids)), Piece(ids[:3]), Piece([*ids[:4], 6, 6], attended=3)]
    packed = runner.forward(runner.pack(pieces))
    runner.model.set_attn_implementation("sdpa")
    runner.execution = "padded"
    torch.testing.assert_close(runner.forward(runner.pack(pieces)), packed, rtol=0, atol=2e-5)


def test_markers_and_masks_in_a_text_stay_text(folders: dict[str, Path]) -> None:
    engine = load(folders["pylate-bert"])
    rows = record_rows(engine, "m")
    texts = ("[Q] the river", "the river [MASK] [D] rose", "[unused0] bees")
    tokens(engine, texts, TextRole.DOCUMENT)
    tokens(engine, texts, TextRole.QUERY)
    tokenizer = load_checkpoint(
        ModelSpec("m", folders["pylate-bert"], ModelKind.LATE_INTERACTION), EngineConfig()
    ).tokenizer
    query, document, mask = (tokenizer.control[token] for token in ("[Q] ", "[D] ", "[MASK]"))
    documents, queries = rows
    assert documents.count(document) == len(texts) and query not in documents and mask not in documents
    assert queries.count(query) == len(texts) and document not in queries
    assert tokenizer.id_of("[unused0]") not in documents + queries
    engine.close()


def test_words_that_the_vocabulary_lacks_skip_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    """PyLate maps them to the unknown token, and then drops every unknown token of a document."""
    folder = build("pylate-bert", tmp_path)
    settings(folder, skiplist_words=["river", "no such piece"])
    engine = load(folder)
    text = tokens(engine, ("the river 7 rose",), TextRole.DOCUMENT)[0]
    tokenizer = load_checkpoint(ModelSpec("m", folder, ModelKind.LATE_INTERACTION), EngineConfig()).tokenizer
    assert tokenizer.id_of("[UNK]") in text.token_ids and tokenizer.id_of("river") not in text.token_ids
    query = tokens(engine, ("the river",), TextRole.QUERY)[0]
    assert tokenizer.id_of("river") in query.token_ids  # of documents only
    engine.close()


def test_lengths_are_the_folders_or_the_registrations(folders: dict[str, Path]) -> None:
    """``max_seq_length`` of such a folder is what the last text happened to need; marker and specials are counted."""
    long = "the river rose " * 9
    engine = load(folders["pylate-bert"])
    assert engine.models()["m"].max_length == 20
    output = engine.submit(ScoringRequest("m", (long,), (long,))).result(60)
    assert (output.query_truncated_tokens[0], output.truncated_tokens[0]) == (27 - (12 - 3), 27 - (20 - 3))
    assert output.prompt_tokens == 12 + 20 and output.status[0] == ItemStatus.TRUNCATED
    engine.close()
    for wanted, document, query in ((40, 27 + 3, 12), (8, 8, 8), (100, 27 + 3, 12)):
        engine = load(folders["pylate-bert"], max_length=wanted)
        assert engine.models()["m"].max_length == min(wanted, 48)
        output = engine.submit(ScoringRequest("m", (long,), (long,))).result(60)
        assert output.prompt_tokens == document + query
        engine.close()


def test_a_limit_of_the_request_counts_the_querys_own_tokens(folders: dict[str, Path]) -> None:
    engine = load(folders["stanford-bert"])
    options = ScoringOptions(max_tokens_per_query=2)
    cut = engine.submit(ScoringRequest("m", ("the river rose",), DOCUMENTS, options=options)).result(60)
    short = engine.submit(ScoringRequest("m", ("the river",), DOCUMENTS)).result(60)
    np.testing.assert_array_equal(cut.query_truncated_tokens, [1])
    np.testing.assert_allclose(cut.scores, short.scores, rtol=0, atol=1e-6)
    engine.close()


def test_texts_without_a_token_are_empty(folders: dict[str, Path]) -> None:
    engine = load(folders["pylate-bert"])
    output = engine.submit(ScoringRequest("m", ("the river", "\u200b"), ("bees", "\u200b", " "))).result(60)
    empty = ItemStatus.EMPTY
    np.testing.assert_array_equal(output.status, [ItemStatus.OK, empty, empty, empty, empty, empty])
    engine.close()


def test_an_unmarked_document_of_skipped_tokens_alone_is_empty(tmp_path: Path) -> None:
    folder = build("pylate-qwen3", tmp_path)
    settings(folder, document_prefix="", skiplist_words=[*string.punctuation, "<|startoftext|>"])
    engine = load(folder)
    output = engine.submit(ScoringRequest("m", ("bees",), ("!?", "bees"))).result(60)
    np.testing.assert_array_equal(output.status, [ItemStatus.EMPTY, ItemStatus.OK])
    engine.close()


def test_an_encoder_that_says_nothing_is_compared_as_it_is(tiny_folders: dict[str, Path]) -> None:
    engine = load(tiny_folders["bert"])
    query = tokens(engine, ("the river, rose",), TextRole.QUERY)[0]
    document = tokens(engine, ("the river, rose",), TextRole.DOCUMENT)[0]
    assert query.token_ids == document.token_ids and query.token_vectors is not None
    assert query.token_vectors.shape == (len(query.token_ids), 32)
    engine.close()


def _change(**changed: Any) -> Callable[[Path], None]:
    return lambda folder: settings(folder, **changed)


def _without_dense(folder: Path) -> None:
    path = folder / "modules.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:1]))


def _without_linear(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["linear.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _metadata(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "artifact.metadata").write_text(json.dumps(changed))

    return change


@pytest.mark.parametrize(
    ("layout", "change", "sentence"),
    [
        ("pylate-bert", _change(query_prefix="[Query] "), r"marks its texts with '\[Query\] '"),
        ("pylate-bert", _without_dense, "without a Dense module"),
        ("pylate-bert", _change(query_length=3), "leaves no room for a text"),
        ("stanford-bert", _without_linear, "without linear.weight"),
        ("stanford-bert", _metadata(similarity="l2"), "compares its tokens by 'l2'"),
        ("stanford-bert", _metadata(doc_token_id="[unused9]"), r"'\[unused9\]'"),
    ],
)
def test_a_folder_that_cannot_be_followed_says_what_it_lacks(
    tmp_path: Path, layout: str, change: Callable[[Path], None], sentence: str
) -> None:
    folder = build(layout, tmp_path)
    change(folder)
    with pytest.raises(EngineError, match=sentence):
        load(folder)
