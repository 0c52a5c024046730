"""Byte strings by key in append-only files of bounded size, within a byte budget. One process owns a folder at a time.

A record is a header and its content. The headers are the index: they are read once, when the folder is opened, so what
was written survives a restart. Both parts carry a checksum, so a torn write, a changed byte or a file that is gone or
cut short makes an entry unknown and never another one. Nothing is forced to the disk: what a power cut takes is missed.

Not a library: LMDB dies with its process (SIGBUS) on a file that was cut short, and a changed byte in a page of its
tree makes the whole of it unreadable; diskcache takes nine times as long to write an entry of 300 kB."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from workers.engine.statistics import CacheStatistics

_MAGIC = b"AEC1"
_HEADER = struct.Struct("<4s16sQII")  # magic, key, bytes and checksum of the content, checksum of all that
_KEY_BYTES = 16
_SEGMENT_BYTES = 2**26
_MOST_SEGMENTS = 128  # so that a large budget does not need thousands of open files
_MOST_ENTRIES = 2**20  # bounds the index, which lies in memory: about 300 bytes an entry
_MOST_OWNERS = 256


class _Place(NamedTuple):
    segment: int
    start: int
    length: int
    checksum: int


@dataclass(eq=False, slots=True)
class _Segment:
    path: Path
    file: IO[bytes]
    size: int = 0
    keys: set[bytes] = field(default_factory=set)
    map: mmap.mmap | None = None

    def mapped(self, end: int) -> mmap.mmap | None:
        """The file in memory up to ``end`` at least; None if it is not that long any more: touching it would kill."""
        if os.fstat(self.file.fileno()).st_size < end:
            return None
        if self.map is None or len(self.map) < end:
            self.map = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        return self.map


class SegmentFiles:
    """``get`` from any thread, ``put`` and ``remove`` from one. Raises ``OSError`` when opened over a folder that
    cannot be used."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._segment_bytes = max(budget_bytes // _MOST_SEGMENTS, min(_SEGMENT_BYTES, budget_bytes // 8), 1)
        self._folder, self._claim = _claim(folder)
        self._segments: OrderedDict[int, _Segment] = OrderedDict()  # the least recently read first
        self._index: dict[bytes, _Place] = {}
        self._active: int | None = None  # the one segment that grows; never one of an earlier process
        self._bytes = self._hits = self._misses = self._evictions = self._failures = 0
        self._lock = threading.Lock()
        found = sorted(path for path in self._folder.glob("*.segment") if path.stem.isdecimal())
        for path in found:
            self._open(path)
        self._next = 1 + max((int(path.stem) for path in found), default=0)
        self._evict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            place = self._index.get(key)
            if place is None:
                self._misses += 1
                return None
            self._segments.move_to_end(place.segment)
            mapped = self._segments[place.segment].mapped(place.start + place.length)
        content = None if mapped is None else mapped[place.start : place.start + place.length]
        intact = content is not None and zlib.crc32(content) == place.checksum
        with self._lock:
            if intact:
                self._hits += 1
                return content
            if self._index.get(key) == place:
                del self._index[key]
            self._misses += 1
            self._failures += 1
            return None

    def put(self, key: bytes, content: bytes) -> None:
        """Append, unless the key is there already. What the disk refuses is counted as a failure and missed later."""
        assert len(key) == _KEY_BYTES
        checksum = zlib.crc32(content)
        head = _HEADER.pack(_MAGIC, key, len(content), checksum, 0)[:-4]
        record = head + zlib.crc32(head).to_bytes(4, "little") + content
        if key in self._index or len(record) > self._budget:
            return
        try:
            number, segment = self._room_for(len(record))
            self._append(segment, record)
        except OSError:
            with self._lock:
                self._failures += 1
            return
        with self._lock:
            self._index[key] = _Place(number, segment.size + _HEADER.size, len(content), checksum)
            segment.keys.add(key)
            segment.size += len(record)
            self._bytes += len(record)
            self._segments.move_to_end(number)
            self._evict()

    def remove(self, keys: Collection[bytes]) -> None:
        """Forget entries and give their bytes back: the files that hold them go, and what else those hold is written
        anew. From the thread that puts."""
        with self._lock:
            numbers = {self._index[key].segment for key in keys if key in self._index}
            for key in keys:
                self._index.pop(key, None)
        for number in numbers:
            with self._lock:
                segment = self._segments.get(number)
                kept = [] if segment is None else self._records(number, segment)
                if segment is not None:
                    self._drop(number)
                    self._active = None if self._active == number else self._active
            for key, content in kept:
                self.put(key, content)

    def close(self) -> None:
        with self._lock:
            self._index.clear()
            for segment in self._segments.values():
                segment.file.close()
            self._segments.clear()
            self._claim.close()

    def statistics(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(
                self._bytes, len(self._index), self._hits, self._misses, self._evictions, self._failures
            )

    def _open(self, path: Path) -> None:
        """Read the headers of a file that an earlier process left; behind one that is damaged nothing can be found."""
        try:
            segment = _Segment(path, path.open("rb"), path.stat().st_size)
        except OSError:
            self._failures += 1
            return
        number, start = int(path.stem), 0
        while start + _HEADER.size <= segment.size:
            head = os.pread(segment.file.fileno(), _HEADER.size, start)
            magic, key, length, checksum, own = _HEADER.unpack(head)
            start += _HEADER.size
            if magic != _MAGIC or own != zlib.crc32(head[:-4]) or start + length > segment.size:
                self._failures += 1
                break
            self._index[key] = _Place(number, start, length, checksum)
            segment.keys.add(key)
            start += length
        self._segments[number] = segment
        self._bytes += segment.size

    def _room_for(self, count: int) -> tuple[int, _Segment]:
        """The growing segment, or the next one if it would grow too large."""
        active = self._segments.get(self._active) if self._active is not None else None
        if active is None or (active.size and active.size + count > self._segment_bytes):
            path = self._folder / f"{self._next:08}.segment"
            active = _Segment(path, path.open("x+b", buffering=0))
            with self._lock:
                self._segments[self._next] = active
                self._active = self._next
            self._next += 1
        assert self._active is not None
        return self._active, active

    def _append(self, segment: _Segment, record: bytes) -> None:
        try:
            _write(segment.file, record, segment.size)
        except OSError:
            # What stands behind the last whole record is torn. Cut off, the file can go on; a new one for every entry
            # that a full disk refuses would use up the process's files.
            try:
                segment.file.truncate(segment.size)
            except OSError:
                self._active = None
            raise

    def _evict(self) -> None:
        """Whole segments, the least recently read first; the growing one stays."""
        while self._bytes > self._budget or len(self._index) > _MOST_ENTRIES:
            number = next((number for number in self._segments if number != self._active), None)
            if number is None:
                return
            self._evictions += self._drop(number)

    def _drop(self, number: int) -> int:
        """One segment and its entries. Returns how many these were."""
        segment = self._segments.pop(number)
        own = [key for key in segment.keys if (place := self._index.get(key)) and place.segment == number]
        for key in own:
            del self._index[key]
        self._bytes -= segment.size
        segment.file.close()  # a reader's mapping holds until it has read
        segment.path.unlink(missing_ok=True)
        return len(own)

    def _records(self, number: int, segment: _Segment) -> list[tuple[bytes, bytes]]:
        """Key and content of what the index still finds in a segment, whole ones only."""
        records = []
        for key in segment.keys:
            place = self._index.get(key)
            mapped = segment.mapped(place.start + place.length) if place and place.segment == number else None
            if place is not None and mapped is not None:
                content = mapped[place.start : place.start + place.length]
                if zlib.crc32(content) == place.checksum:
                    records.append((key, content))
        return records


def _claim(folder: Path) -> tuple[Path, IO[bytes]]:
    """A subfolder that no living process uses, the lowest first, so that a restart finds its own again."""
    for number in range(_MOST_OWNERS):
        own = folder / str(number)
        own.mkdir(parents=True, exist_ok=True)
        claim = (own / "claim").open("ab")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except BlockingIOError:
            claim.close()
            continue
        return own, claim
    raise OSError(f"{folder} is used by {_MOST_OWNERS} processes already; give another folder.")


def _write(file: IO[bytes], record: bytes, offset: int) -> None:
    view = memoryview(record)
    while view:
        count = os.pwrite(file.fileno(), view, offset)
        view, offset = view[count:], offset + count
