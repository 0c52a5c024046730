"""The cells of a comparison's summary: its numbers, and small drawings in SVG units so that templates only write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scoring.selectors.comparison_statistics import MeasureRow
from scoring.statistics import Difference

WIDTH: Final = 120
MARGIN: Final = 4  # so that a dot at the end is whole
JUDGED_LOW: Final = 0.8
JUDGED_BAD: Final = 0.5


@dataclass(frozen=True, slots=True)
class DotAndBar:
    """A difference and its interval around zero in the middle of 120 units."""

    x: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return round(max(self.high - self.low, 1.0), 2)


@dataclass(frozen=True, slots=True)
class Part:
    """Of a bar of 100 units: queries that are ``kind`` (better, equal, worse)."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Cell:
    row: MeasureRow
    drawn: DotAndBar | None
    parts: list[Part]

    @property
    def change(self) -> Difference | None:
        return self.row.difference

    @property
    def judged_tone(self) -> str:
        share = self.row.judged
        if share is None or share >= JUDGED_LOW:
            return ""
        return "warn" if share >= JUDGED_BAD else "bad"


@dataclass(frozen=True, slots=True)
class CellRow:
    """One measure. ``reach``: what the ends of its drawings stand for."""

    measure: str
    primary: bool
    n: int
    reach: float
    cells: list[Cell]


def cell_rows(by_measure: Sequence[Sequence[MeasureRow]]) -> list[CellRow]:
    """Without the measures of coverage, which stand in the cells of the others."""
    named = ((rows, rows[0].measure) for rows in by_measure)
    return [_cell_row(rows) for rows, name in named if not name.startswith("Judged@")]


def _cell_row(rows: Sequence[MeasureRow]) -> CellRow:
    intervals = [row.difference.interval for row in rows if row.difference and row.difference.interval]
    reach = max((abs(end) for found in intervals for end in (found.low, found.high)), default=0.0)
    cells = [Cell(row, _drawn(row.difference, reach), _parts(row.difference)) for row in rows]
    return CellRow(rows[0].measure, rows[0].primary, rows[0].n, reach, cells)


def _drawn(change: Difference | None, reach: float) -> DotAndBar | None:
    if change is None or change.interval is None or change.delta is None:
        return None
    middle, scale = WIDTH / 2, (WIDTH / 2 - MARGIN) / (reach or 1.0)
    places = (middle + scale * value for value in (change.delta, change.interval.low, change.interval.high))
    return DotAndBar(*(round(place, 2) for place in places))


def _parts(change: Difference | None) -> list[Part]:
    if change is None or not change.n:
        return []
    parts, x = [], 0.0
    for kind, count in (("better", change.better), ("equal", change.equal), ("worse", change.worse)):
        width = round(100 * count / change.n, 2)
        parts.append(Part(kind, round(x, 2), width))
        x += width
    return parts
