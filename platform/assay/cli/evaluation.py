"""``assay evaluate``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from assay.cli.output import AsJson, say, show_json, show_rows
from assay.client import Client
from assay.client.shapes import SavedEvaluation


def add_to(app: typer.Typer) -> None:
    app.command()(evaluate)


def evaluate(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="Its id.", show_default=False)],
    judgements: Annotated[str, typer.Option(help="Id of a version of a judgement set.", show_default=False)],
    measure: Annotated[
        list[str] | None, typer.Option(help="A name such as nDCG@10; may be repeated. Otherwise the usual four.")
    ] = None,
    stage: Annotated[int | None, typer.Option(help="From 0 on; otherwise the last.")] = None,
    only_relevant: Annotated[
        bool, typer.Option("--only-relevant", help="Leave out queries without a relevant document.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a ranking against judgements, and keep the evaluation.

    \b
    assay evaluate JOB --judgements SET
    assay evaluate JOB --judgements SET --measure nDCG@10 --measure "P(rel=2)@5" --json
    """
    with Client() as client:
        evaluation = client.evaluations.create(
            job_id, judgements, measures=measure, stage=stage, only_relevant=only_relevant
        )
    if as_json:
        return show_json(evaluation)
    show_rows(
        ("measure", "mean", "judged", "ties"),
        ((one["measure"], _number(one["mean"]), _number(one["judged"]), _ties(one)) for one in evaluation["measures"]),
    )
    say(_counted(evaluation))


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _ties(measure: dict[str, Any]) -> str | None:
    """Between which values the mean would be, where the order of tied documents decides."""
    return f"{measure['worst']:.4f} to {measure['best']:.4f}" if measure["tie_sensitive"] else None


def _counted(evaluation: SavedEvaluation) -> str:
    left = {
        "without judgements (left out)": evaluation["unjudged"],
        "without results (counted 0)": evaluation["without_results"],
    }
    parts = [f"{count:,} {words}" for words, count in left.items() if count]
    counted = f"n = {evaluation['n']:,} of {evaluation['queries']:,}" + (f": {', '.join(parts)}" if parts else "")
    return f"{counted}. Incomplete: not every pair was scored." if evaluation["incomplete"] else f"{counted}."
