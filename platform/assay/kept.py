"""Rows read moments ago, so that what a request costs the database does not grow with traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

FRESH_SECONDS: Final = 0.5
MOST_KEPT: Final = 1000

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(eq=False, slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = float("-inf")  # time.monotonic() before it was read
    value: Any = None
    error: Exception | None = None


class Kept(Generic[Key, Value]):
    """What ``read`` gave, by key, for ``seconds``. All threads get the same object, so nobody may change it."""

    seconds: ClassVar[float] = FRESH_SECONDS

    def __init__(self, read: Callable[[Key], Value]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}

    def get(self, key: Key, *, afresh: bool = False) -> Value:
        """``afresh``: read after this call began."""
        called = time.monotonic()
        since = called if afresh else called - self.seconds
        entry = self._entry(key)
        with entry.lock:  # whoever comes meanwhile shares this read, and its failure
            if entry.at < (called if entry.error else since):
                self._fill(entry, key)
            if entry.error:
                raise entry.error.with_traceback(None)  # else it would grow, and keep frames alive
            value: Value = entry.value
            return value

    def _fill(self, entry: _Entry, key: Key) -> None:
        entry.at, entry.error = time.monotonic(), None
        try:
            entry.value = self._read(key)
        except Exception as error:
            entry.error = error  # raised by whoever asked

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def _entry(self, key: Key) -> _Entry:
        with self._lock:
            if len(self._entries) >= MOST_KEPT and key not in self._entries:  # keys may be strangers' inventions
                self._entries.clear()
            return self._entries.setdefault(key, _Entry())
