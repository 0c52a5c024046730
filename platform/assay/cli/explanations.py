"""``assay explain``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from assay.cli.inputs import Model, Settings, settings_of
from assay.cli.output import AsJson, show_fields, show_json, show_rows
from assay.client import Client


def add_to(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    query: Annotated[str, typer.Argument(help="A text; with --job the query's id.")],
    document: Annotated[str, typer.Argument(help="A text; with --job the document's id.")],
    job: Annotated[str | None, typer.Option(help="Why the document has its rank in this job.")] = None,
    stage: Annotated[int | None, typer.Option(help="Of the job, from 0 on; otherwise the last.")] = None,
    model: Model = None, settings: Settings = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Score one pair and say why: counted tokens, shared terms, labels, parts.

    \b
    assay explain "how do I stop a nosebleed?" "Pinch the nose." --model late
    assay explain q1 d7 --job 01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12
    """
    if job is not None and model is not None:
        raise typer.BadParameter("A job has models of its own; give --stage instead of --model.")
    if job is None and stage is not None:
        raise typer.BadParameter("--stage is of a job; give --job too.")
    fields = settings_of(settings, taken=("query", "document", "model", "stage"))
    with Client() as client:
        if job is not None:
            found = client.jobs.explain(job, query, document, stage=stage)
        else:
            found = client.explain(query, document, model=model, **fields)
    if as_json:
        return show_json(found)
    result = found["result"]
    show_fields(
        {"model": found["model"], "score": found["score"], "raw": result.get("raw_score"), "status": result["status"]}
    )
    for note in found["notes"]:
        typer.echo(note)
    headings, rows = _reasons(found)
    if rows:
        typer.echo()
        show_rows(headings, rows)


def _reasons(found: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """The largest first, of the one thing that models of this kind can say."""
    if found["matches"]:
        rows = sorted(_matches(found), key=lambda row: -(row[0] or 0.0))
        return ("gives", "query", "document"), rows
    if found["terms"]:
        return ("gives", "term", "in query", "in document"), [
            (term["product"], term["text"], term["query_weight"], term["document_weight"]) for term in found["terms"]
        ]
    if found["labels"]:
        return ("share", "label"), [(label["probability"], label["label"]) for label in found["labels"]]
    return ("weight", "part", "score"), [(part["weight"], part["name"], part["score"]) for part in found["parts"]]


def _matches(found: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    texts = {row["role"]: row["texts"] for row in found["rows"]}
    for match in found["matches"]:
        query, document = texts["query"][match["query_token"]], texts["document"][match["document_token"]]
        yield match["contribution"], query.strip(), document.strip()
