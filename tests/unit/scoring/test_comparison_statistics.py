"""The table of a comparison: which queries count, what is tested, what is said beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scoring.selectors.comparison_statistics import (
    MeasureTable,
    coverage_remarks,
    measure_table,
    measures_beside,
)
from scoring.statistics import Outcome, PairedTest, corrected, paired_difference

NAMES = ["nDCG@10", "AP", "Judged@10"]


@pytest.fixture
def values() -> Any:
    """[3 stages, 3 measures, 40 queries]; query 39 was not judged, and has no AP in the second stage's query 0."""
    found = np.random.default_rng(5).uniform(size=(3, 3, 40))
    found[:, :, 39] = np.nan
    found[1, 1, 0] = np.nan
    return found


def test_means_and_tests_are_over_the_queries_that_all_have(values: Any) -> None:
    table = measure_table(values, NAMES, [True] * 3, PairedTest.T)
    assert table.measures == NAMES and table.n == 39
    assert [rows[0].n for rows in table.by_measure] == [39, 38, 39]
    ap = table.by_measure[1]
    assert ap[0].mean == pytest.approx(values[0, 1, 1:39].mean())
    family = corrected([paired_difference(values[0, 1, 1:39], values[stage, 1, 1:39]) for stage in (1, 2)])
    assert [row.difference for row in ap] == [None, *family]
    assert [rows[0].primary for rows in table.by_measure] == [True, False, False]
    assert table.rows[2][0].judged == table.rows[2][2].mean and table.rows[2][1].judged is None
    assert MeasureTable.unpack(table.packed()) == table


def test_an_incomplete_stage_has_no_test_and_takes_none_from_others(values: Any) -> None:
    table = measure_table(values, NAMES, [True, False, True], PairedTest.RANDOMISATION)
    _, part, whole = (row.difference for row in table.by_measure[0])
    assert part is not None and (part.outcome, part.p, part.interval) == (Outcome.INCOMPLETE, None, None)
    assert whole is not None and whole.p is not None and whole.p_corrected == whole.p
    nothing = measure_table(values, NAMES, [False, True, True], PairedTest.T)
    assert {row.difference.outcome for row in nothing.by_measure[0][1:] if row.difference} == {Outcome.INCOMPLETE}


def test_unequal_coverage_is_said(values: Any) -> None:
    values[:, 2] = 0.3
    assert coverage_remarks(measure_table(values, NAMES, [True] * 3, PairedTest.T)) == []
    values[2, 2] = 0.36
    (remark,) = coverage_remarks(measure_table(values, NAMES, [True] * 3, PairedTest.T))
    assert remark.startswith("Judged@10 differs by more than 0.05: A 0.30, B 0.30, C 0.36.")


def test_every_cut_off_has_its_coverage_beside_it() -> None:
    assert measures_beside("P@5") == [
        "P@5", "nDCG@10", "RR@10", "R@100", "Judged@10", "Judged@5", "Judged@100",
    ]  # fmt: skip
    assert measures_beside("nDCG@10")[0] == "nDCG@10" and measures_beside("AP")[0] == "AP"


def test_without_a_judged_query_there_is_a_table_of_nothing() -> None:
    table = measure_table(np.full((2, 3, 4), np.nan), NAMES, [True, True], PairedTest.T)
    row = table.by_measure[0][1]
    assert (row.n, row.mean, row.interval) == (0, None, None)
    assert row.difference is not None and row.difference.outcome == Outcome.TOO_FEW
