"""Charts that the server draws: their geometry in SVG units, so that templates only write it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: list[Bar]
    top: float


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


def bar_chart(values: Sequence[tuple[str, float]]) -> BarChart:
    top = max((value for _, value in values), default=0.0)
    step = WIDTH / max(len(values), 1)
    bars = []
    for place, (label, value) in enumerate(values):
        height = HEIGHT * value / top if top else 0.0
        bars.append(
            Bar(round(place * step, 2), round(HEIGHT - height, 2), round(step * 0.8, 2), round(height, 2), label, value)
        )
    return BarChart(bars, top)


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
        x = WIDTH * (at - first).total_seconds() / span
        y = HEIGHT - (HEIGHT - 4) * (value / top if top else 0.0) - 2
        lines[-1].append(f"{x:.1f},{y:.1f}")
        before = at
    for line in lines:
        if len(line) == 1:  # a point alone would not be seen
            left, _, height = line[0].partition(",")
            line.append(f"{float(left) + 3:.1f},{height}")
    return LineChart(title, unit, [" ".join(line) for line in lines], top, known[-1][1], first, last)
