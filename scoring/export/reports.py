"""What was measured of several rankings as files for papers and notebooks: CSV wide and long, Markdown, LaTeX.

Each begins with where its numbers come from. The line of a comment holds no separator of a CSV file, so that neither a
spreadsheet nor a reader that skips ``#`` sees anything in it but one cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.http import StreamingHttpResponse

from scoring.export.tables import csv_table
from scoring.selectors.comparison_statistics import MeasureRow, MeasureTable
from scoring.statistics import ALPHA

SEPARATORS: Final = re.compile(r'[\s,;|"]+')
MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|])")
LATEX: Final = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class System:
    """A ranking in a report. ``letter`` from A; ``job`` its job's name."""

    letter: str
    name: str
    job: str


@dataclass(frozen=True, slots=True)
class Report:
    """``values`` float64 [systems, measures, queries] in the order of ``table.measures`` and ``query_ids``, NaN where
    there is none. ``provenance``: a line each."""

    name: str
    title: str
    provenance: list[str]
    systems: list[System]
    table: MeasureTable
    query_ids: list[str]
    values: Any


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """``about`` is said before it is chosen."""

    title: str
    suffix: str
    content_type: str
    about: str
    written: Callable[[Report], Iterator[str]]


def wide_csv(report: Report) -> Iterator[str]:
    """A row per query, a column per ranking and measure."""
    header = ["query_id", *(f"{system.letter} {name}" for system in report.systems for name in report.table.measures)]
    columns = report.values.reshape(-1, len(report.query_ids))
    rows = ([query, *map(_number, columns[:, place])] for place, query in enumerate(report.query_ids))
    return _commented_csv(report, header, rows)


def long_csv(report: Report) -> Iterator[str]:
    """A row per value: whose it is, of which query, which measure."""
    rows = (
        [system.letter, system.name, system.job, query, name, _number(report.values[s, m, q])]
        for s, system in enumerate(report.systems)
        for q, query in enumerate(report.query_ids)
        for m, name in enumerate(report.table.measures)
    )
    return _commented_csv(report, ["letter", "ranking", "job", "query_id", "measure", "value"], rows)


def markdown(report: Report) -> Iterator[str]:
    yield f"# {_markdown_safe(report.title)}\n\n"
    yield "".join(f"- {_markdown_safe(line)}\n" for line in report.provenance)
    yield "\n"
    yield from _markdown_table(["Ranking", *report.table.measures], _mean_rows(report, _markdown_safe, "<sup>{}</sup>"))
    changes = list(_change_rows(report, _markdown_safe))
    if changes:
        yield f"\n{_legend('Superscript')}\n\n"
        yield from _markdown_table(CHANGE_HEADER, changes)


def latex(report: Report) -> Iterator[str]:
    yield "".join(f"% {' '.join(line.split())}\n" for line in [report.title, *report.provenance])
    yield "% Needs \\usepackage{booktabs}.\n\\begin{table}\n\\centering\n"
    means = list(_mean_rows(report, latex_safe, "$^{{{}}}$"))
    yield from _latex_table(["Ranking", *report.table.measures], means)
    changes = list(_change_rows(report, latex_safe))
    if changes:
        yield "\n\\medskip\n\n"
        yield from _latex_table(CHANGE_HEADER, changes)
    legend = f" {_legend('Superscript')}" if changes else ""
    yield f"\\caption{{{latex_safe(report.title)}.{latex_safe(legend)}}}\n\\end{{table}}\n"


REPORTS: Final = {
    "wide": ReportFormat("CSV, wide", "wide.csv", "text/csv; charset=utf-8", "a row per query", wide_csv),
    "long": ReportFormat("CSV, long", "long.csv", "text/csv; charset=utf-8", "a row per value", long_csv),
    "markdown": ReportFormat("Markdown", "md", "text/markdown; charset=utf-8", "means, differences, tests", markdown),
    "latex": ReportFormat("LaTeX", "tex", "application/x-tex; charset=utf-8", "means, differences, tests", latex),
}
CHANGE_HEADER: Final = ["Measure", "Against A", "Difference", "95 % interval", "Better / equal / worse", "Test"]


def report_response(report: Report, name: str) -> StreamingHttpResponse:
    """The file in a format of ``REPORTS``."""
    chosen = REPORTS[name]
    place = {"Content-Disposition": f'attachment; filename="{report.name}.{chosen.suffix}"'}
    parts = (part.encode() for part in chosen.written(report))
    return StreamingHttpResponse(parts, content_type=chosen.content_type, headers=place)


def latex_safe(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _markdown_safe(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _legend(superscript: str) -> str:
    return (
        f"{superscript} a: differs from A with a corrected p of at most {ALPHA}; higher, or lower where an arrow "
        "points down. Measures other than the first are exploratory."
    )


def _mean_rows(report: Report, safe: Callable[[str], str], raised: str) -> Iterator[list[str]]:
    """``raised`` is how a superscript is written."""
    for system, rows in zip(report.systems, report.table.rows, strict=True):
        yield [f"{system.letter} {safe(system.name)}", *(_mean(row, raised) for row in rows)]


def _mean(row: MeasureRow, raised: str) -> str:
    if row.mean is None:
        return "none"
    partial = "" if row.complete else " (incomplete)"
    change = row.difference
    if change is None or not change.significant:
        return f"{row.mean:.4f}{partial}"
    down = "\\downarrow " if "$" in raised else "↓"
    return f"{row.mean:.4f}{raised.format('a' if change.verdict == 'higher' else f'{down}a')}"


def _change_rows(report: Report, safe: Callable[[str], str]) -> Iterator[list[str]]:
    for rows in report.table.by_measure:
        for system, row in zip(report.systems, rows, strict=True):
            change = row.difference
            if change is None or change.delta is None:
                continue
            interval = change.interval
            yield [
                safe(f"{row.measure}{' (primary)' if row.primary else ''}"),
                f"{system.letter} {safe(system.name)}",
                f"{change.delta:+.4f}",
                f"{interval.low:+.4f} to {interval.high:+.4f}" if interval else "none",
                f"{change.better} / {change.equal} / {change.worse}",
                safe(change.words),
            ]


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |\n|{' --- |' * len(header)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


def _latex_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n\\toprule\n"
    yield f"{_latex_row(map(latex_safe, header))}\\midrule\n"
    for row in rows:
        yield _latex_row(row)
    yield "\\bottomrule\n\\end{tabular}\n"


def _latex_row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\\n"


def _commented_csv(report: Report, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """The byte order mark stays the first thing in the file."""
    table = csv_table(header, rows)
    first = next(table)
    lines = [report.title, *report.provenance]
    yield "\ufeff" + "".join(f"# {SEPARATORS.sub(' ', line)}\r\n" for line in lines) + first.removeprefix("\ufeff")
    yield from table


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
