"""Values kept for a moment: read once for all, read again in time, and never without bound."""

from __future__ import annotations

import threading
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


def test_many_who_wait_for_a_read_that_fails_do_not_try_one_after_the_other() -> None:
    began, go, reads = threading.Event(), threading.Event(), list[None]()

    def read(key: None) -> int:
        reads.append(key)
        began.set()
        assert go.wait(30)
        raise ConnectionError("not there")

    words = Kept[None, int](read)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(words.get, None)
        assert began.wait(30)
        asked = threading.Barrier(9)

        def ask() -> int:
            asked.wait(30)
            return words.get(None)

        others = [pool.submit(ask) for _ in range(8)]
        asked.wait(30)
        go.set()
        assert all(isinstance(one.exception(30), ConnectionError) for one in [first, *others])
    assert len(reads) < 9
    with pytest.raises(ConnectionError):
        words.get(None)  # a failure is not kept
    assert len(reads) >= 3
