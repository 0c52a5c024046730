"""Values kept for a moment: read once for all, read again in time, and never without bound."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay import kept
from assay.kept import Kept


@pytest.fixture(autouse=True)
def _hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept, "seconds", 3600.0)


def noted(read: list[Any], key: Any) -> int:
    read.append(key)
    return len(read)


def test_a_value_is_read_once_until_somebody_needs_a_fresh_one() -> None:
    read: list[str] = []
    words = Kept[str, int](lambda key: noted(read, key))
    assert (words.get("a"), words.get("a"), words.get("b")) == (1, 1, 2)
    assert (words.get("a", afresh=True), words.get("a")) == (3, 3)
    words.clear()
    assert words.get("b") == 4 and read == ["a", "b", "a", "b"]


def test_a_value_that_is_too_old_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[None] = []
    words = Kept[None, int](lambda key: noted(read, key))
    monkeypatch.setattr(Kept, "seconds", 0.0)
    assert [words.get(None) for _ in range(3)] == [1, 2, 3]


def test_strangers_keys_do_not_fill_the_memory() -> None:
    words = Kept[int, int](lambda key: key)
    for key in range(3 * kept.MOST_KEPT):
        words.get(key)
    assert len(words._entries) <= kept.MOST_KEPT


class Asked:
    """A key that notes each look-up: whoever looked it up has called, and waits for the read or makes it."""

    def __init__(self) -> None:
        self.times: list[None] = []

    def __hash__(self) -> int:
        self.times.append(None)
        return 0

    def __eq__(self, other: object) -> bool:
        return self is other


def test_many_who_wait_for_a_read_that_fails_do_not_try_one_after_the_other() -> None:
    reads, key, began = list[Asked](), Asked(), threading.Event()

    def read(key: Asked) -> int:
        reads.append(key)
        began.set()
        give_up = time.monotonic() + 30
        while len(key.times) < 9:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        raise ConnectionError("not there")

    words = Kept[Asked, int](read)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(words.get, key)
        assert began.wait(30)
        others = [pool.submit(words.get, key) for _ in range(8)]
        assert all(isinstance(one.exception(60), ConnectionError) for one in [first, *others])
    assert len(reads) == 2  # the second is for all who called while the first went on
    with pytest.raises(ConnectionError):
        words.get(key)  # a failure is not kept
    assert len(reads) == 3
