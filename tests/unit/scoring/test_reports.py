"""What is taken away of a comparison: provenance first, nothing that a spreadsheet runs, marks where a test decides."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from scoring.export.reports import REPORTS, Report, System, latex_safe
from scoring.selectors.comparison_statistics import measure_table
from scoring.statistics import PairedTest

NAMES = ["nDCG@10", "AP"]
QUERIES = 30


@pytest.fixture
def report() -> Report:
    """B is clearly higher in the first measure and clearly lower in the second; query 0 was not judged."""
    baseline = np.random.default_rng(2).uniform(0.2, 0.6, size=(2, QUERIES))
    noise = np.random.default_rng(3).uniform(-0.01, 0.01, size=(2, QUERIES))
    values: Any = np.stack([baseline, baseline + noise + np.array([[0.1], [-0.1]])])
    values[:, :, 0] = np.nan
    return Report(
        name="assay-comparison-1",
        title="Words, =1+1 & 50 %",
        provenance=["A (baseline): BM25, of job =cmd()", "n = 29 of 30"],
        systems=[System("A", "BM25", "=cmd()"), System("B", "mini_lm", "Night | run")],
        table=measure_table(values, NAMES, [True, True], PairedTest.T),
        query_ids=["=q0", *(f"q{n}" for n in range(1, QUERIES))],
        values=values,
    )


def written(report: Report, name: str) -> str:
    return "".join(REPORTS[name].written(report))


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


def test_a_wide_file_has_a_row_per_query_and_its_numbers_are_whole(report: Report) -> None:
    text = written(report, "wide")
    rows = rows_of(text)
    assert text.startswith("\ufeff# Words =1+1 & 50 %\r\n") and [len(row) for row in rows[:3]] == [1, 1, 1]
    assert rows[1] == ["# A (baseline): BM25 of job =cmd()"]
    assert rows[3] == ["query_id", "A nDCG@10", "A AP", "B nDCG@10", "B AP"]
    assert rows[4] == ["'=q0", "", "", "", ""] and len(rows) == 4 + QUERIES
    assert [float(cell) for cell in rows[5][1:]] == report.values[:, :, 1].ravel().tolist()


def test_a_long_file_has_a_row_per_value(report: Report) -> None:
    rows = rows_of(written(report, "long"))
    assert rows[3] == ["letter", "ranking", "job", "query_id", "measure", "value"]
    assert rows[4] == ["A", "BM25", "'=cmd()", "'=q0", "nDCG@10", ""]
    assert rows[-1] == ["B", "mini_lm", "Night | run", "q29", "AP", str(report.values[1, 1, 29])]
    assert len(rows) == 4 + 2 * 2 * QUERIES


def test_markdown_marks_what_a_test_decides(report: Report) -> None:
    text = written(report, "markdown")
    means = [f"{value:.4f}" for value in np.nanmean(report.values, axis=2).ravel()]
    assert f"| A BM25 | {means[0]} | {means[1]} |" in text
    assert f"| B mini\\_lm | {means[2]}<sup>a</sup> | {means[3]}<sup>↓a</sup> |" in text
    assert "- n = 29 of 30" in text and "29 / 0 / 0 | p \\< 0.0001 |" in text


def test_latex_is_escaped_and_balanced(report: Report) -> None:
    text = written(report, "latex")
    assert text.startswith("% Words, =1+1 & 50 %\n% A (baseline)")
    body = text[text.index("\\begin{table}") :]
    assert "mini\\_lm" in body and "$^{a}$" in body and "$^{\\downarrow a}$" in body
    assert "\\caption{Words, =1+1 \\& 50 \\%." in body
    assert body.count("{") - body.count("\\{") == body.count("}") - body.count("\\}")
    assert body.count("\\begin{") == body.count("\\end{") == 3 and "p \\textless{} 0.0001" in body
    assert latex_safe("a_b\n^{x}\\") == "a\\_b \\textasciicircum{}\\{x\\}\\textbackslash{}"
