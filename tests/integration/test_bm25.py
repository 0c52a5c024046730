"""BM25 as bm25s computes it, and the indexes that a worker keeps."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest

from assay.api.principal import Principal
from scoring.models import Document, DocumentSet
from scoring.services.imports import set_import
from scoring.services.stage_plan import BM25
from workers import bm25_indexes
from workers.bm25 import Bm25Index, build
from workers.bm25_indexes import Bm25Indexes

EXAMPLES = Path(__file__).parents[2] / "examples"
CRANFIELD = Path(__file__).parents[3] / "shared" / "data" / "cranfield"

Imported = Callable[..., DocumentSet]


def nothing() -> None:
    pass


@pytest.fixture
def imported(principal: Principal) -> Imported:
    def run(texts: Sequence[str], name: str = "documents") -> DocumentSet:
        content = "".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts))
        uploaded, _ = set_import(
            principal=principal,
            kind_name="documents",
            name=name,
            file=io.BytesIO(content.encode()),
            file_name="d.jsonl",
        )
        return uploaded  # type: ignore[return-value]

    return run


def examples() -> tuple[list[str], list[str]]:
    with (EXAMPLES / "documents.csv").open(newline="") as file:
        documents = [row["body"] for row in csv.DictReader(file)]
    with (EXAMPLES / "queries.tsv").open(newline="") as file:
        return documents, [row["text"] for row in csv.DictReader(file, delimiter="\t")]


def cranfield() -> tuple[list[str], list[str]]:
    if not CRANFIELD.is_dir():
        pytest.skip("the Cranfield collection is not here")
    texts = [
        [json.loads(line)["text"] for line in (CRANFIELD / name).read_text().splitlines()]
        for name in ("documents.jsonl", "queries.jsonl")
    ]
    return texts[0], texts[1]


@pytest.mark.parametrize("collection", [examples, cranfield])
def test_scores_equal_those_of_bm25s(collection: Callable[[], tuple[list[str], list[str]]], tmp_path: Path) -> None:
    documents, queries = collection()
    build(iter(documents), tmp_path, BM25, nothing)
    index = Bm25Index(tmp_path, BM25)
    plain = bm25s.BM25()
    plain.index(bm25s.tokenize(documents, show_progress=False), show_progress=False)
    words = bm25s.tokenize(queries, return_ids=False, show_progress=False)
    top_k = min(100, len(documents))
    _, expected = plain.retrieve(words, k=top_k, show_progress=False)
    for query, own, best in zip(queries, words, expected, strict=True):
        positions, scores = index.search(query, top_k=top_k)
        every = plain.get_scores(own)  # by document
        assert scores.tolist() == best[best > 0].tolist() == every[positions].tolist()
        ties = np.diff(scores) == 0
        assert bool((np.diff(positions)[ties] > 0).all())


def test_ties_are_in_the_order_of_the_documents(tmp_path: Path) -> None:
    build(["bees", "honey", "bees", "stone bees", "bees", ""], tmp_path, BM25, nothing)
    index = Bm25Index(tmp_path, BM25)
    assert index.search("Bees!", top_k=2)[0].tolist() == [0, 2]
    assert index.search("bees", top_k=9)[0].tolist() == [0, 2, 4, 3]
    for nothing_to_find in ("", "the", "zebra"):
        assert index.search(nothing_to_find, top_k=3)[0].tolist() == []


def test_texts_without_words_make_an_index_that_finds_nothing(tmp_path: Path) -> None:
    build(["the", "", "a b c"], tmp_path, BM25, nothing)
    assert Bm25Index(tmp_path, BM25).search("bees", top_k=3)[0].tolist() == []


def test_an_index_is_built_once_and_again_when_damaged(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []

    def counted(texts: Any, folder: Path, *rest: Any) -> None:
        built.append(folder)
        build(texts, folder, *rest)

    monkeypatch.setattr(bm25_indexes, "build", counted)
    documents = imported(["river bees", "honey"])

    def found() -> list[int]:
        """By a worker that has just started."""
        index = Bm25Indexes(tmp_path, limit=1 << 30).of(documents, BM25, progress=nothing)
        return index.search("honey", top_k=5)[0].tolist()

    assert found() == found() == [1] and len(built) == 1
    [folder] = tmp_path.iterdir()
    data = folder / "data.csc.index.npy"
    data.write_bytes(data.read_bytes()[:-1] + b"\x7f")
    assert found() == [1] and len(built) == 2
    (folder / "vocab.index.json").unlink()
    assert found() == [1] and len(built) == 3
    shutil.rmtree(folder)
    assert found() == [1] and len(built) == 4
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_the_least_recently_used_index_goes_first(imported: Imported, tmp_path: Path) -> None:
    one, two, three = (imported([f"{name} bees"], name) for name in ("one", "two", "three"))
    indexes = Bm25Indexes(tmp_path, limit=1 << 30)

    def kept() -> set[str]:
        return {path.name.partition("-")[0] for path in tmp_path.iterdir()}

    for documents in (one, two):
        indexes.of(documents, BM25, progress=nothing)
    size = max(sum(file.stat().st_size for file in folder.iterdir()) for folder in tmp_path.iterdir())
    for folder in tmp_path.iterdir():
        os.utime(folder, (0, 0))  # long ago: clocks of file systems tick slowly
    Bm25Indexes(tmp_path, limit=1 << 30).of(one, BM25, progress=nothing)
    Bm25Indexes(tmp_path, limit=2 * size + size // 2).of(three, BM25, progress=nothing)
    assert kept() == {one.pk.hex, three.pk.hex}


def test_indexes_of_deleted_sets_go_with_the_next_build(imported: Imported, tmp_path: Path) -> None:
    one, two = imported(["bees"], "one"), imported(["honey"], "two")
    indexes = Bm25Indexes(tmp_path, limit=1 << 30)
    indexes.of(one, BM25, progress=nothing)
    Document.objects.filter(document_set=one).delete()
    one.delete()
    indexes.of(two, BM25, progress=nothing)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == [two.pk.hex]


def test_building_stops_when_nobody_wants_it_any_more(imported: Imported, tmp_path: Path) -> None:
    documents = imported(["bees", "honey", "stone"])

    class Unwanted(Exception):
        pass

    def cancelled() -> None:
        raise Unwanted

    with pytest.raises(Unwanted):
        Bm25Indexes(tmp_path, limit=1 << 30).of(documents, BM25, progress=cancelled)
    assert list(tmp_path.iterdir()) == []
