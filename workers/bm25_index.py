"""BM25 indexes of document sets: built once by bm25s, kept on the disk, read by memory map.

Words are runs of two or more letters, digits or underscores in lower case, less English stop words; nothing is stemmed.
A set's text never changes, so an index is named by what it is made of: the set, its file's checksum, the version of
bm25s and the parameters. It is built in a folder of another name and renamed, so that no half index is ever opened;
one that does not fit the checksums in its manifest is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np
import numpy.typing as npt

from scoring.models import Document, DocumentSet
from scoring.ranking import Floats, Positions

logger = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
BUILDING: Final = ".building-"
LEFT_BEHIND_SECONDS: Final = 24 * 3600.0  # a folder being built for so long belongs to a process that died
OPEN_AT_ONCE: Final = 4
READ_AT_ONCE: Final = 2000
Progress = Callable[[], None]  # called now and then; what it raises ends the building


class Bm25Index:
    """One document set's index. Shapes: D documents of the set."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        self._index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        self._stop_words = parameters["stop_words"]

    def search(self, query: str, *, top_k: int) -> tuple[Positions, Floats]:
        """Positions and scores of the best documents that share a word with the query; ties by position."""
        (words,) = bm25s.tokenize(
            [query], stopwords=self._stop_words, return_ids=False, show_progress=False, allow_empty=False
        )
        known = self._index.get_tokens_ids(words)
        if not known:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        scores = self._index.get_scores_from_ids(known)  # [D]
        best = _best(scores, top_k)
        return best.astype(np.int32), scores[best].astype(np.float32)


class Bm25Indexes:
    """The indexes that a worker keeps, within ``limit`` bytes on the disk; the least recently used go first."""

    def __init__(self, folder: Path, *, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._open: OrderedDict[str, Bm25Index] = OrderedDict()
        self._lock = threading.Lock()  # one build at a time: it takes memory

    def of(self, document_set: DocumentSet, parameters: Mapping[str, Any], *, progress: Progress) -> Bm25Index:
        """The set's index, built if there is none yet; ``parameters`` as in a BM25 stage's settings."""
        name = _name(document_set, parameters)
        with self._lock:
            index = self._open.pop(name, None) or self._opened(name, document_set, parameters, progress)
            self._open[name] = index
            while len(self._open) > OPEN_AT_ONCE:
                self._open.popitem(last=False)
        return index

    def _opened(
        self, name: str, document_set: DocumentSet, parameters: Mapping[str, Any], progress: Progress
    ) -> Bm25Index:
        folder = self._folder / name
        if not _is_whole(folder):
            self._build(folder, document_set, parameters, progress)
        os.utime(folder)
        return Bm25Index(folder, parameters)

    def _build(
        self, folder: Path, document_set: DocumentSet, parameters: Mapping[str, Any], progress: Progress
    ) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        started = time.monotonic()
        building = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self._folder))
        try:
            texts = Document.objects.filter(document_set=document_set).order_by("position")
            build(texts.values_list("text", flat=True).iterator(READ_AT_ONCE), building, parameters, progress)
            manifest = {path.name: (path.stat().st_size, _digest(path)) for path in building.iterdir()}
            (building / MANIFEST).write_text(json.dumps(manifest))
            self._make_room(folder, sum(size for size, _ in manifest.values()))
            if not _is_whole(folder):  # else another process was faster
                shutil.rmtree(folder, ignore_errors=True)
                building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        logger.info("BM25 index of %s built in %.1f s", document_set, time.monotonic() - started)

    def _make_room(self, coming: Path, size: int) -> None:
        """Remove what nobody can ask for any more, then the least recently used, until ``size`` bytes more fit."""
        for left in self._folder.glob(f"{BUILDING}*"):
            if time.time() - left.stat().st_mtime > LEFT_BEHIND_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        kept = DocumentSet.objects.filter(texts_deleted_at__isnull=True).values_list("pk", flat=True)
        wanted = {pk.hex for pk in kept}
        others = [path for path in self._folder.iterdir() if not path.name.startswith(".") and path != coming]
        others.sort(key=lambda path: path.stat().st_mtime)
        used = size + sum(_size(path) for path in others)
        for path in others:
            if used > self._limit or path.name.partition("-")[0] not in wanted:
                used -= _size(path)
                shutil.rmtree(path, ignore_errors=True)  # who has it mapped keeps it until done


def build(texts: Iterable[str], folder: Path, parameters: Mapping[str, Any], progress: Progress) -> None:
    """Write the index of ``texts``, in the order of their positions, into ``folder``.

    Texts are read once, one after the other. What stays in memory is 4 bytes per word read, then about 40 bytes per
    different word of each document while bm25s sorts them.
    """
    tokenizer = bm25s.tokenization.Tokenizer(stopwords=parameters["stop_words"])
    lists = WordLists(tokenizer.streaming_tokenize(texts), progress)
    index = bm25s.BM25(method=parameters["variant"], k1=parameters["k1"], b=parameters["b"])
    vocabulary = tokenizer.get_vocab_dict()
    index.vocab_dict = vocabulary
    index.scores = index.build_index_from_ids(list(vocabulary.values()), lists, show_progress=False)
    index.save(folder, show_progress=False)


class WordLists:
    """The word ids of every document, one flat array: a list of lists takes ten times the memory."""

    def __init__(self, documents: Iterable[list[int]], progress: Progress) -> None:
        self._progress = progress
        self._ids, self._ends = array("i"), array("q")
        for ids in documents:
            self._ids.extend(ids)
            self._ends.append(len(self._ids))
            progress()

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._ids[start:end].tolist()
            start = end
            self._progress()


def _best(scores: Floats, top_k: int) -> npt.NDArray[np.intp]:
    """Indices of the ``top_k`` highest scores above 0, best first, ties by index: bm25s leaves ties to chance."""
    found = np.flatnonzero(scores > 0)
    own = scores[found]
    if len(found) > top_k:
        least = np.partition(own, -top_k)[-top_k]
        above, ties = found[own > least], found[own == least]
        found = np.concatenate([above, ties[: top_k - len(above)]])
        own = scores[found]
    return found[np.lexsort((found, -own))]


def _name(document_set: DocumentSet, parameters: Mapping[str, Any]) -> str:
    made_of = {"checksum": document_set.checksum, "bm25s": bm25s.__version__, **parameters}
    digest = hashlib.blake2b(json.dumps(made_of, sort_keys=True).encode(), digest_size=12).hexdigest()
    return f"{document_set.pk.hex}-{digest}"


def _is_whole(folder: Path) -> bool:
    """Whether the folder holds exactly what was written into it."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return all(
            (folder / name).stat().st_size == size and _digest(folder / name) == digest
            for name, (size, digest) in manifest.items()
        )
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
