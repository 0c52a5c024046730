"""The one order of results. Everything that ranks, measures, shows or exports goes through here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from scoring.states import ITEM_STATUSES, ItemStatus

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]
FLOAT = np.dtype("<f4")
POSITION = np.dtype("<i4")
FAILED: Final = ITEM_STATUSES.index(ItemStatus.FAILED)
TOP: Final = 10  # the depth that people look at, and most measures are of
ABSENT: Final = 255  # status of a cell that is no pair: its query has fewer candidates than the block is wide


@dataclass(frozen=True, slots=True)
class ScoreBlock:
    """Scores of queries × documents: ``raw``, ``activated`` float32 [Q, D], NaN: none; ``statuses`` uint8 [Q, D].

    ``positions`` int32 [Q, D]: which documents were found, best first, where the block was retrieved; -1: none.
    """

    raw: Floats
    activated: Floats
    statuses: npt.NDArray[np.uint8]
    positions: Positions | None = None

    @classmethod
    def blank(cls, shape: tuple[int, ...]) -> ScoreBlock:
        """Cells without a pair, to be filled in."""
        raw = np.full(shape, np.nan, np.float32)
        return cls(raw, raw.copy(), np.full(shape, ABSENT, np.uint8))

    @property
    def pair_count(self) -> int:
        return int(np.count_nonzero(self.statuses != ABSENT))

    def packed(self) -> dict[str, Any]:
        """As table columns; ``scores`` is empty where activation changed nothing."""
        return {
            "raw_scores": self.raw.astype(FLOAT).tobytes(),
            "scores": b"" if same_scores(self.raw, self.activated) else self.activated.astype(FLOAT).tobytes(),
            "statuses": self.statuses.astype(np.uint8).tobytes(),
            "document_positions": b"" if self.positions is None else self.positions.astype(POSITION).tobytes(),
            "pair_count": self.pair_count,
        }

    def counts(self) -> dict[str, Any]:
        """As table columns; a pair that was empty is in neither."""
        return {
            "scored_pairs": int(np.count_nonzero(~np.isnan(self.raw))),
            "failed_pairs": int(np.count_nonzero(self.statuses == FAILED)),
        }

    @classmethod
    def unpack(cls, row: Any, shape: tuple[int, ...]) -> ScoreBlock:
        """``row`` has the columns of ``packed`` that hold scores and statuses."""
        return cls.of_bytes(row.raw_scores, row.scores, row.statuses, shape)

    @classmethod
    def of_bytes(cls, raw: bytes, scores: bytes, statuses: bytes, shape: tuple[int, ...]) -> ScoreBlock:
        """The same from the columns, or equal parts of them."""
        unchanged = np.frombuffer(raw, FLOAT).reshape(shape)
        activated = np.frombuffer(scores, FLOAT).reshape(shape) if scores else unchanged
        return cls(unchanged, activated, np.frombuffer(statuses, np.uint8).reshape(shape))


def same_scores(raw: Floats, activated: Floats) -> bool:
    return bool(np.array_equal(raw, activated, equal_nan=True))


def ranked(raw: Floats) -> npt.NDArray[np.intp]:
    """Indices of ``raw`` float32 [D], best first: scored before unscored (NaN), raw descending, ties in input order."""
    unscored = np.isnan(raw)
    keys = np.where(unscored, 0.0, -raw)
    return np.lexsort((keys, unscored))  # the last key is the first criterion; lexsort is stable


def ties(raw: Floats, top: int = TOP) -> tuple[int, int]:
    """Pairs of documents of ``raw`` float32 [D], in rank order, with the same score: all, and those of which the first
    ``top`` hold one only. Which of such two is in the top was decided by their order in the set, not by the model."""
    scored = raw[~np.isnan(raw)]
    _, group = np.unique(scored, return_inverse=True)
    sizes = np.bincount(group)
    above = np.bincount(group[:top], minlength=len(sizes))
    return int((sizes * (sizes - 1) // 2).sum()), int((above * (sizes - above)).sum())


def decimals(values: Floats | Sequence[float | None]) -> list[float | None]:
    """Of ``values`` float32 [D] the shortest decimals that read back as the same float32, as every page, answer and
    export shows them; None for NaN."""
    floats = np.asarray(values, np.float32)
    numbers: list[float | None] = orjson.loads(orjson.dumps(floats, option=orjson.OPT_SERIALIZE_NUMPY))
    return numbers


def status_name(code: int) -> ItemStatus:
    return ITEM_STATUSES[code]


def strictly_decreasing(scores: Floats) -> Floats:
    """``scores`` float32 [D] in rank order, each lowered just enough to be below the one before it.

    Tools that read a run file order it by score and break ties their own way; with this they must find our order.
    """
    result = scores.astype(np.float32).copy()
    lowest = np.float32(-np.inf)
    for i in range(1, len(result)):
        if not result[i] < result[i - 1]:
            result[i] = np.nextafter(result[i - 1], lowest, dtype=np.float32)
    return result
