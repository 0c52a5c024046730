"""``assay compare``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from assay.cli.inputs import ranking_of
from assay.cli.output import AsJson, say, show_json, show_rows
from assay.client import Client
from assay.client.shapes import Comparison

FORMATS: Final = {".csv": "wide", ".md": "markdown", ".tex": "latex"}
LETTERS: Final = "ABCD"


def add_to(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    rankings: Annotated[
        list[str], typer.Argument(metavar="JOB[:STAGE]...", help="Two to four, the baseline first.", show_default=False)
    ],
    judgements: Annotated[str | None, typer.Option("--judgements", help="Id of a judgement set.")] = None,
    measure: Annotated[str | None, typer.Option(help="Which one decides; otherwise nDCG@10.")] = None,
    test: Annotated[
        str | None, typer.Option(help="t, randomisation or, of more than two, randomised_tukey; otherwise t.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Otherwise made from the rankings.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write what was measured: .csv, .md or .tex.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare rankings of the same queries; against judgements, with tests of their differences.

    The comparison is saved. Without a stage, a job's last one is meant.

    \b
    assay compare JOB:0 JOB:1 --judgements SET
    assay compare JOB OTHER --judgements SET --measure AP --test randomisation -o table.tex
    """
    stages = [ranking_of(ranking) for ranking in rankings]
    chosen = _format_of(output)
    with Client() as client:
        made = client.comparisons.create(
            stages, judgement_set=judgements, primary_measure=measure, test=test, name=name
        )
        if output and chosen:
            client.comparisons.export(made["id"], output, format=chosen)
    if as_json:
        return show_json(made)
    _show(made)
    for remark in made["remarks"]:
        say(remark["text"])


def _format_of(output: Path | None) -> str | None:
    if output is None:
        return None
    if output.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"'{output.name}' tells no format: end it in {', '.join(FORMATS)}.")
    return FORMATS[output.suffix.lower()]


def _show(made: Comparison) -> None:
    if made["measures"]:
        headings = ("measure", "ranking", "n", "mean", "judged", "difference", "interval", "better/equal/worse", "test")
        return show_rows(headings, _measure_rows(made))
    show_rows(
        ("with A", "queries", "rbo", "overlap@10", "tau"),
        (
            (_named(made, place), one["queries"], one["rbo"], one["overlap"], one["tau"])
            for place, one in enumerate(made["similarities"], start=1)
        ),
    )  # fmt: skip


def _measure_rows(made: Comparison) -> Iterator[tuple[Any, ...]]:
    for rows in zip(*made["measures"], strict=True):
        for place, row in enumerate(rows):
            name = f"{row['measure']}{' (primary)' if row['primary'] else ''}"
            counts = None if row["better"] is None else f"{row['better']}/{row['equal']}/{row['worse']}"
            interval = row["interval"] and f"{row['interval']['low']:+.4f} to {row['interval']['high']:+.4f}"
            decided = row["verdict"] if row["verdict"] in ("higher", "lower") else ""
            words = f"{row['words'] or ''} {decided}".strip()
            yield (name, _named(made, place), row["n"], row["mean"], row["judged"], row["delta"], interval, counts,
                   words or "baseline")  # fmt: skip


def _named(made: Comparison, place: int) -> str:
    return f"{LETTERS[place]} {made['stages'][place]['name']}"
