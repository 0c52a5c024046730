"""``assay upload`` and ``assay sets``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.inputs import STANDARD_INPUT, settings_of
from assay.cli.output import AsJson, Limit, first, show_json, show_rows
from assay.cli.progress import upload_bar
from assay.client import Client
from assay.client.sessions import Session
from assay.client.sets import Sets
from assay.client.shapes import UploadedSet

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What was uploaded.")


class Kind(StrEnum):
    DOCUMENTS = "documents"
    QUERIES = "queries"
    JUDGEMENTS = "judgements"
    RUNS = "runs"


Mapping = Annotated[
    list[str] | None,
    typer.Option("--mapping", metavar="FIELD=COLUMN", help="Such as text=body; what is left out is guessed."),
]


def add_to(app: typer.Typer) -> None:
    app.command()(upload)


def upload(
    kind: Kind,
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON lines or TREC; - is standard input.")],
    name: Annotated[str | None, typer.Option(help="Otherwise the file's.")] = None,
    mapping: Mapping = None,
    keep_good_rows: Annotated[
        bool, typer.Option("--keep-good-rows", help="Leave bad rows out instead of refusing the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a file of documents, queries, judgements or runs. The same bytes again are the set that is there already.

    \b
    assay upload documents advice.csv --mapping text=body
    assay upload queries questions.tsv --name "Household questions"
    """
    with Client() as client:
        uploaded = uploaded_from(
            sets_of(client, kind), file, name=name, mapping=settings_of(mapping) or None, keep_good_rows=keep_good_rows
        )
    if as_json:
        return show_json(uploaded)
    _show([uploaded])


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument()] = Kind.DOCUMENTS, limit: Limit = 20, as_json: AsJson = False) -> None:
    """The team's sets of one kind, the newest first."""
    with Client() as client:
        found = first(sets_of(client, kind).list(), limit)
    if as_json:
        return show_json(found)
    _show(found)


@app.command()
def delete(kind: Kind, set_id: str, as_json: AsJson = False) -> None:
    """Delete a set that no job refers to."""
    with Client() as client:
        sets_of(client, kind).delete(set_id)
    if as_json:
        show_json({"deleted": set_id})


def sets_of(client: Client, kind: Kind) -> Sets[Session]:
    return {
        Kind.DOCUMENTS: client.document_sets,
        Kind.QUERIES: client.query_sets,
        Kind.JUDGEMENTS: client.judgements,
        Kind.RUNS: client.runs,
    }[kind]


def uploaded_from(sets: Sets[Session], file: Path, **options: Any) -> UploadedSet:
    """Ends with a usage error if the file cannot be read."""
    with tempfile.TemporaryFile() if file == STANDARD_INPUT else _opened(file) as source:
        if file == STANDARD_INPUT:  # its length must be known before it is sent
            shutil.copyfileobj(sys.stdin.buffer, source)
            options["name"] = options.get("name") or "standard input"
        with upload_bar(file.name) as on_progress:
            return sets.upload(source, on_progress=on_progress, **options)


def _opened(file: Path) -> Any:
    try:
        return file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from error


def _show(found: Sequence[UploadedSet]) -> None:
    rows = ((each["id"], each["name"], each["state"], each["counts"]["kept"], each["created_at"]) for each in found)
    show_rows(("id", "name", "state", "rows", "created"), rows)
