"""The measures of compared stages as a table: means, differences from the baseline, how sure one may be of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from scoring.selectors.evaluation import DEFAULT_MEASURES
from scoring.statistics import (
    Difference,
    Floats,
    Interval,
    Outcome,
    PairedTest,
    bootstrap_interval,
    differences,
)

JUDGED: Final = "Judged"
JUDGED_APART: Final = 0.05  # shares of judged documents that differ by more are no fair comparison
LIBRARIES: Final = ("ir-measures", "numpy", "scipy")


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """One measure of one stage over ``n`` queries, those for which all stages have a value. ``interval`` is of the
    mean, by bootstrap (none of a share that was judged); ``judged`` the mean Judged@k of the same cut-off, None without
    one; ``difference`` is from the baseline, None for the baseline itself."""

    measure: str
    primary: bool
    n: int
    mean: float | None
    interval: Interval | None
    judged: float | None
    complete: bool
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class MeasureTable:
    """``rows`` by stage, then by measure, the primary one first. ``versions`` of the libraries that computed it."""

    rows: list[list[MeasureRow]]
    versions: dict[str, str]

    @property
    def measures(self) -> list[str]:
        return [row.measure for row in self.rows[0]] if self.rows else []

    @property
    def n(self) -> int:
        """Queries that the primary measure is over."""
        return self.rows[0][0].n if self.rows else 0

    @property
    def by_measure(self) -> list[list[MeasureRow]]:
        return [list(rows) for rows in zip(*self.rows, strict=True)]

    def packed(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def unpack(cls, content: str) -> MeasureTable:
        kept = json.loads(content)
        return cls([[_row_of(row) for row in rows] for rows in kept["rows"]], kept["versions"])


def _row_of(kept: dict[str, Any]) -> MeasureRow:
    difference = kept["difference"]
    if difference is not None:
        outcome, interval = Outcome(difference["outcome"]), _interval_of(difference["interval"])
        difference = Difference(**{**difference, "outcome": outcome, "interval": interval})
    return MeasureRow(**{**kept, "interval": _interval_of(kept["interval"]), "difference": difference})


def _interval_of(kept: dict[str, float] | None) -> Interval | None:
    return kept and Interval(**kept)  # type: ignore[return-value]


def measures_beside(primary: str) -> list[str]:
    """The primary measure, the usual ones, and to each cut-off how much of it was judged."""
    names = dict.fromkeys([primary, *DEFAULT_MEASURES])
    judged = (f"{JUDGED}@{cutoff}" for name in names if (cutoff := _cutoff(name)))
    return list(dict.fromkeys([*names, *judged]))


def measure_table(values: Any, names: Sequence[str], complete: Sequence[bool], test: PairedTest) -> MeasureTable:
    """``values`` float64 [stages, measures, queries], the baseline first, NaN where there is none; ``complete``
    [stages]: whether the stage scored every pair. Raises ValueError for infinite values."""
    judged = {name: [_mean(own) for own in values[:, place]] for place, name in enumerate(names) if _coverage(name)}
    by_measure = []
    for place, name in enumerate(names):
        common = values[:, place][:, ~np.isnan(values[:, place]).any(axis=0)]
        beside = judged.get(f"{JUDGED}@{_cutoff(name)}", [None] * len(values)) if not _coverage(name) else None
        changes = _differences(common, name, complete, test)
        by_measure.append(
            [
                MeasureRow(
                    measure=name,
                    primary=place == 0,
                    n=common.shape[1],
                    mean=_mean(own),
                    interval=None if _coverage(name) else bootstrap_interval(own),
                    judged=beside[stage] if beside else None,
                    complete=complete[stage],
                    difference=changes[stage],
                )
                for stage, own in enumerate(common)
            ]
        )
    return MeasureTable(
        [list(rows) for rows in zip(*by_measure, strict=True)], {name: version(name) for name in LIBRARIES}
    )


def coverage_remarks(table: MeasureTable) -> list[str]:
    """Where two stages were judged so differently that the less judged one is at a disadvantage."""
    remarks = []
    for rows in table.by_measure:
        shares = [row.mean for row in rows]
        if not _coverage(rows[0].measure) or None in shares:
            continue
        if max(shares) - min(shares) > JUDGED_APART:  # type: ignore[type-var, operator]
            told = ", ".join(f"{letter} {share:.2f}" for letter, share in zip("ABCD", shares, strict=False))
            remarks.append(
                f"{rows[0].measure} differs by more than {JUDGED_APART}: {told}. Documents that nobody judged count as "
                "not relevant, so the ranking with fewer judged ones may look worse than it is."
            )
    return remarks


def _differences(values: Floats, name: str, complete: Sequence[bool], test: PairedTest) -> list[Difference | None]:
    """``values`` [stages, n]. The family of a correction is one measure of all stages but the baseline."""
    untested = [
        Outcome.COVERAGE if _coverage(name) else None if complete[0] and whole else Outcome.INCOMPLETE
        for whole in complete[1:]
    ]
    return [None, *differences(values, test=test, untested=untested)]


def _coverage(name: str) -> bool:
    return name.startswith(f"{JUDGED}@")


def _cutoff(name: str) -> int | None:
    found = re.search(r"@(\d+)$", name)
    return int(found[1]) if found else None


def _mean(values: Floats) -> float | None:
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else None
