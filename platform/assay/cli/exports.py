"""``assay export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from assay.cli.inputs import Settings, settings_of
from assay.cli.output import AsJson, show_json
from assay.client import Client

FORMATS: Final = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".run": "trec", ".qrels": "trec"}


def add_to(app: typer.Typer) -> None:
    app.command()(export)


def export(
    table: Annotated[
        str,
        typer.Argument(help="documents, queries, judgements, runs, results, jobs, verdicts, usage, score-requests, …"),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Otherwise standard output.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl, parquet or trec; otherwise by the file's name, else csv.")
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Have any table made into a file and fetch it. --set gives its filters.

    \b
    assay export documents --set set=01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11 -o advice.parquet
    assay export jobs --set state=failed
    assay export usage --set first=2026-11-01 --set last=2026-11-30 --set by=model
    """
    chosen = format or (FORMATS.get(output.suffix.lower()) if output else None) or "csv"
    parameters = settings_of(settings, taken=("table", "format"))
    with Client() as client:
        made = client.exports.save(table, output or sys.stdout.buffer, format=chosen, **parameters)
    if as_json and output:
        show_json({"file": str(output), "format": chosen, "rows": made["rows_done"], "bytes": output.stat().st_size})
