"""Rendezvous hashing: the same texts go to the same worker, whose caches know them, and few move when workers change.

Shapes: N texts, W workers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.uint64]
MIX: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # the finaliser of SplitMix64


def digests(texts: Sequence[str | list[int]]) -> Digests:  # [N]
    contents = (text.encode() if isinstance(text, str) else json.dumps(text).encode() for text in texts)
    return np.frombuffer(b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in contents), "<u8")


def weights(content: Digests, workers: Sequence[str]) -> Weights:
    """How much each text (by its digest) prefers each worker."""
    mixed = content[:, None] ^ digests(workers)[None, :]  # [N, W]
    for shift, factor in MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def preferred(given: Weights) -> list[int]:
    """Workers in the order in which the texts together prefer them.

    The largest weight of all decides, so that two lists that share most texts mostly agree, and a text alone goes
    where it would go as a part of a list that is split.
    """
    return [int(worker) for worker in np.argsort(given.max(axis=0))[::-1]]


def shares(given: Weights, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:  # [N]
    """The worker of each text: its most preferred one that has room. All have the same room, counted in ``sizes``,
    which only the last text of each may pass."""
    room = np.full(given.shape[1], sizes.sum() / given.shape[1])
    owner = np.empty(len(sizes), dtype=np.int64)
    orders = np.argsort(given, axis=1)[:, ::-1]  # [N, W]
    for text in np.argsort(given.max(axis=1))[::-1]:  # the most decided ones choose first
        worker = next((worker for worker in orders[text] if room[worker] > 0), orders[text, 0])
        owner[text], room[worker] = worker, room[worker] - sizes[text]
    return owner
