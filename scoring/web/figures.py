"""Charts as templates draw them: bars and lines as SVG made here, series as data for ``static/charts.js``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

HEIGHT: Final = 100
STEP: Final = 10
LINE_WIDTH: Final = 600
LINE_HEIGHT: Final = 120
MOST_POINTS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a histogram, in the units of its drawing."""

    label: str
    count: float
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
class LineChart:
    """``lines``: what an SVG polyline takes, one for each stretch without a gap."""

    title: str
    unit: str  # of the values: bytes are told in words
    lines: list[str]
    top: float
    last: float | None
    first_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over common ``labels``; ``kind`` is Chart.js's type, or "live" for a series over time (seconds).
    ``points``: each value is seen by itself, with a line to the next there is, as where few are measured."""

    kind: str
    labels: Sequence[str | float]
    series: Mapping[str, Sequence[float | None]]
    unit: str = ""
    points: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """For ``static/charts.js``. A page never carries more points than a screen can show."""
        every = max(1, -(-len(self.labels) // MOST_POINTS))
        return {
            "kind": self.kind,
            "labels": list(self.labels[::every]),
            "series": [{"name": name, "values": list(values[::every])} for name, values in self.series.items()],
            "unit": self.unit,
            "points": self.points,
        }


def histogram(counts: Sequence[tuple[str, float]], *, caption: str, unit: str) -> Histogram | None:
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


def line_chart(
    title: str, points: Sequence[tuple[datetime, float | None]], *, unit: str = "", gap_seconds: float = 300.0
) -> LineChart:
    """``points`` in the order of time; None: nothing was known then. A silence longer than ``gap_seconds`` is a gap."""
    known = [(at, value) for at, value in points if value is not None]
    top = max((value for _, value in known), default=0.0)
    if not known:
        return LineChart(title, unit, [], 0.0, None, None, None)
    first, last = known[0][0], known[-1][0]
    span = max((last - first).total_seconds(), 1.0)
    lines: list[list[str]] = []
    before: datetime | None = None
    for at, value in known:
        if before is None or (at - before).total_seconds() > gap_seconds:
            lines.append([])
        x = LINE_WIDTH * (at - first).total_seconds() / span
        y = LINE_HEIGHT - (LINE_HEIGHT - 4) * (value / top if top else 0.0) - 2
        lines[-1].append(f"{x:.1f},{y:.1f}")
        before = at
    for line in lines:
        if len(line) == 1:  # a point alone would not be seen
            left, _, height = line[0].partition(",")
            line.append(f"{float(left) + 3:.1f},{height}")
    return LineChart(title, unit, [" ".join(line) for line in lines], top, known[-1][1], first, last)
