"""Charts as templates draw them: bars as SVG made here, series as data for the scripts in ``static/charts.js``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

HEIGHT: Final = 100
STEP: Final = 10
MOST_POINTS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a histogram, in the units of its drawing."""

    label: str
    count: int
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """``caption`` says what the horizontal axis is, ``unit`` what is counted."""

    caption: str
    unit: str
    bars: list[Bar]
    bar_width: int = STEP - 1

    @property
    def width(self) -> int:
        return STEP * len(self.bars)

    @property
    def first_label(self) -> str:
        return self.bars[0].label

    @property
    def last_label(self) -> str:
        return self.bars[-1].label


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over common ``labels``; ``kind`` is Chart.js's type, or "live" for a series over time (seconds)."""

    kind: str
    labels: Sequence[str | float]
    series: Mapping[str, Sequence[float | None]]
    unit: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """For ``static/charts.js``. A page never carries more points than a screen can show."""
        every = max(1, -(-len(self.labels) // MOST_POINTS))
        return {
            "kind": self.kind,
            "labels": list(self.labels[::every]),
            "series": [{"name": name, "values": list(values[::every])} for name, values in self.series.items()],
            "unit": self.unit,
        }


def histogram(counts: Sequence[tuple[str, int]], *, caption: str, unit: str) -> Histogram | None:
    """Bars for (label, count) from left to right; None where nothing was counted."""
    highest = max((count for _, count in counts), default=0)
    if not highest:
        return None
    heights = [round(HEIGHT * count / highest, 2) for _, count in counts]
    # What is there at all is seen: a bar is at least one unit high.
    shown = [max(height, 1.0) if count else 0.0 for height, (_, count) in zip(heights, counts, strict=True)]
    bars = [
        Bar(label, count, STEP * index, HEIGHT + 4 - height, height)
        for index, ((label, count), height) in enumerate(zip(counts, shown, strict=True))
    ]
    return Histogram(caption, unit, bars)
