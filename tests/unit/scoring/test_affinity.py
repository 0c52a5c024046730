"""Rendezvous hashing and the shares of a request that is split."""

from __future__ import annotations

import numpy as np

from scoring.affinity import digests, preferred, shares, weights

TEXTS = [f"text {n}" for n in range(3000)]
WORKERS = [f"worker-{n}" for n in range(5)]


def test_texts_spread_evenly_and_few_move_when_a_worker_goes() -> None:
    before = weights(digests(TEXTS), WORKERS).argmax(axis=1)
    assert np.bincount(before).min() > len(TEXTS) / len(WORKERS) * 0.85
    after = weights(digests(TEXTS), WORKERS[:4]).argmax(axis=1)
    stayed = before < 4
    assert (before[stayed] == after[stayed]).all()


def test_a_text_alone_goes_where_it_goes_in_a_list() -> None:
    (alone,) = weights(digests(TEXTS[:1]), WORKERS)
    assert preferred(weights(digests(TEXTS[:1]), WORKERS))[0] == alone.argmax()
    lists = [TEXTS[start : start + 20] for start in range(0, 3000, 20)]
    same = sum(
        preferred(weights(digests(each), WORKERS))[0] == preferred(weights(digests([*each[:-1], "new"]), WORKERS))[0]
        for each in lists
    )
    assert same > len(lists) * 0.85, "one text in twenty changed"


def test_shares_are_even_in_size_and_mostly_as_preferred() -> None:
    given = weights(digests(TEXTS), WORKERS)
    sizes = np.arange(len(TEXTS)) % 90 + 10
    owner = shares(given, sizes)
    held = np.bincount(owner, weights=sizes)
    assert held.max() - held.min() <= 2 * sizes.max()
    assert (owner == given.argmax(axis=1)).mean() > 0.85


def test_token_ids_are_texts_too() -> None:
    assert digests([[1, 2], [1, 2], [12]]).tolist()[0] == digests([[1, 2]])[0] != digests([[12]])[0]
