"""BM25 indexes of document sets: built once, kept on the disk, read by memory map.

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
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bm25s

from scoring.models import Document, DocumentSet
from workers.bm25 import Bm25Index, Progress, build

logger = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
BUILDING: Final = ".building-"
LEFT_BEHIND_SECONDS: Final = 24 * 3600.0  # a folder being built for so long belongs to a process that died
OPEN_AT_ONCE: Final = 4
READ_AT_ONCE: Final = 2000


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
            self._make_room(folder, _size(building))
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
        kept = DocumentSet.objects.filter(texts_delete_requested_at=None).values_list("pk", flat=True)
        wanted = {pk.hex for pk in kept}
        others = [path for path in self._folder.iterdir() if not path.name.startswith(".") and path != coming]
        others.sort(key=lambda path: path.stat().st_mtime)
        used = size + sum(_size(path) for path in others)
        for path in others:
            if used > self._limit or path.name.partition("-")[0] not in wanted:
                used -= _size(path)
                shutil.rmtree(path, ignore_errors=True)  # who has it mapped keeps it until done


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
