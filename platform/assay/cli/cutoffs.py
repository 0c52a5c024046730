"""``assay cutoff``: from which score on a document is relevant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from assay.cli.output import AsJson, Limit, first, say, show_fields, show_json, show_rows
from assay.client import Client

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Cut-offs for the scores of a model.")
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Its id.", show_default=False)]
Judgements = Annotated[str, typer.Option("--judgements", help="Id of a judgement set.", show_default=False)]
Stage = Annotated[int | None, typer.Option(help="From 0 on; otherwise the last.")]
RelevantFrom = Annotated[int | None, typer.Option(help="Lowest relevant grade; otherwise the judgement set's.")]
PerToken = Annotated[bool, typer.Option("--per-query-token", help="MaxSim divided by the query's token vectors.")]
SHARES: Final = ("precision", "recall", "f1")


@app.command()
def measure(
    job_id: JobId,
    judgements: Judgements,
    score: Annotated[float | None, typer.Option(help="This cut-off alone.")] = None,
    stage: Stage = None,
    relevant_from: RelevantFrom = None,
    per_query_token: PerToken = False,
    as_json: AsJson = False,
) -> None:
    """Precision, recall and F1 of calling relevant what has at least a score, with 95 % intervals.

    \b
    assay cutoff measure JOB --judgements SET
    assay cutoff measure JOB --judgements SET --score 0.42
    """
    with Client() as client:
        found = client.jobs.thresholds(
            job_id, judgements, score=score, stage=stage, relevant_from=relevant_from, per_query_token=per_query_token
        )
    if as_json:
        return show_json(found)
    show_rows(
        ("score", "above", "found", *SHARES),
        ([one["score"], one["above"], one["found"], *_shares(one)] for one in found["cut_offs"]),
    )
    base = f"{found['relevant']:,} of {found['pairs']:,} judged pairs are relevant ({found['base_rate']:.4f})."
    for line in (f"Highest F1 at {found['best']['score']:.4f}. {base}", *found["remarks"]):
        say(line)


@app.command()
def advise(
    job_id: JobId,
    judgements: Judgements,
    score: Annotated[float, typer.Option(help="What is as high is taken for relevant.", show_default=False)],
    note: Annotated[str | None, typer.Option(help="Why this one.")] = None,
    stage: Stage = None,
    relevant_from: RelevantFrom = None,
    per_query_token: PerToken = False,
    as_json: AsJson = False,
) -> None:
    """Keep a cut-off as advice for the model, with what was measured as evidence. Nothing applies it.

    \b
    assay cutoff advise JOB --judgements SET --score 0.42 --note "A wrong answer costs more than none."
    """
    with Client() as client:
        made = client.threshold_advice.create(
            job_id, judgements, score, stage=stage, relevant_from=relevant_from, per_query_token=per_query_token,
            note=note,
        )  # fmt: skip
    if as_json:
        return show_json(made)
    show_fields({name: made[name] for name in ("id", "model", "score", "note")})
    for remark in made["evidence"]["remarks"]:
        say(remark)


@app.command("list")
def list_(
    model: Annotated[str | None, typer.Option("--model", "-m", help="Of this model alone.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """What the team was advised, the newest first; the newest of a model is in force."""
    with Client() as client:
        found = first(client.threshold_advice.list(**({"model": model} if model else {})), limit)
    if as_json:
        return show_json(found)
    show_rows(
        ("id", "model", "score", *SHARES, "outdated", "note"),
        (
            (one["id"], one["model"], one["score"], *_shares(one["evidence"]), ", ".join(one["outdated"]) or None,
             one["note"])
            for one in found
        ),
    )  # fmt: skip


@app.command()
def withdraw(
    advice_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)], as_json: AsJson = False
) -> None:
    """Withdraw an advised cut-off; the one before it is in force again."""
    with Client() as client:
        client.threshold_advice.delete(advice_id)
    if as_json:
        show_json({"deleted": advice_id})


def _shares(measured: Mapping[str, Any]) -> Sequence[str | None]:
    """Each with its interval."""
    found = (measured[name] for name in SHARES)
    return [each and f"{each['value']:.4f} ({each['low']:.4f} to {each['high']:.4f})" for each in found]
