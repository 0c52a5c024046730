"""What commands read: texts from files and standard input, and fields as NAME=VALUE."""

from __future__ import annotations

import csv
import io
import json
import sys
import uuid
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from assay.client.comparisons import Ranking
from assay.client.shapes import Document

STANDARD_INPUT: Final = Path("-")


class Format(StrEnum):
    LINES = "lines"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


SUFFIXES: Final = {".csv": Format.CSV, ".tsv": Format.TSV, ".jsonl": Format.JSONL, ".ndjson": Format.JSONL}

DocumentsFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="One document a line, .csv or .tsv with a heading, or .jsonl; - is standard input.",
        show_default=False,
    ),
]
DocumentTexts = Annotated[list[str] | None, typer.Option("--document", "-d", help="A document; may be repeated.")]
FormatOption = Annotated[Format | None, typer.Option("--format", help="Of the file; otherwise by its name.")]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", help="Column or field to be read; several are joined.", show_default="text"),
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="A registered name; otherwise the default model.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other field of the request; the value in JSON, or a text."),
]


def set_id(given: str) -> str:
    """Of a document set. Ends with a usage error for what is no id."""
    try:
        return str(uuid.UUID(given))
    except ValueError as error:
        message = f"'{given}' is no id of a document set; `assay sets list documents` shows the ids."
        raise typer.BadParameter(message) from error


def ranking_of(given: str) -> Ranking:
    """JOB or JOB:STAGE. Ends with a usage error for what names no stage."""
    job, colon, stage = given.partition(":")
    if not colon:
        return job
    if not (stage.isascii() and stage.isdecimal()):
        raise typer.BadParameter(f"'{given}' names no stage: give JOB or JOB:STAGE, stages counting from 0.")
    return job, int(stage)


def documents_of(
    file: Path | None, texts: Sequence[str] | None, format: Format | None, fields: Sequence[str] | None
) -> list[Document]:
    """All of them, those of ``texts`` first. Ends with a usage error if there is none, or the file cannot be read."""
    documents: list[Document] = list(texts or ())
    if file is not None:
        documents += _parsed(_read(file), format or SUFFIXES.get(file.suffix.lower(), Format.LINES), file, fields)
    if not documents:
        raise typer.BadParameter("No documents: name a file, - for standard input, or give some with --document.")
    return documents


def rank_fields(documents: Sequence[Document], fields: Sequence[str] | None) -> dict[str, Any]:
    return {"rank_fields": list(fields)} if fields and any(isinstance(each, dict) for each in documents) else {}


def settings_of(given: Sequence[str] | None, *, taken: Sequence[str] = ()) -> dict[str, Any]:
    """Ends with a usage error for what is not NAME=VALUE, and for a name that is ``taken`` by an argument or option."""
    settings = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"'{each}' is not NAME=VALUE.")
        if name in taken:
            raise typer.BadParameter(f"'{name}' has an argument or an option of its own; give it there.")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _read(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8: byte {error.start} cannot be read.") from error


def _parsed(content: str, format: Format, file: Path, fields: Sequence[str] | None) -> list[Document]:
    if format is Format.LINES:
        return [*content.removesuffix("\n").split("\n")] if content else []
    if format is Format.JSONL:
        return [_parsed_line(line, number, file) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    rows = csv.DictReader(io.StringIO(content, newline=""), delimiter="\t" if format is Format.TSV else ",")
    columns = rows.fieldnames or []
    if missing := [name for name in fields or ["text"] if name not in columns]:
        raise typer.BadParameter(f"{file} has no column '{missing[0]}'; give --field with: {', '.join(columns)}.")
    return [{name: value for name, value in row.items() if isinstance(name, str)} for row in rows]


def _parsed_line(line: str, number: int, file: Path) -> Document:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise typer.BadParameter(f"Line {number} of {file} is not JSON: {error}.") from error
    if not isinstance(document, str | dict):
        raise typer.BadParameter(f'Line {number} of {file} is neither a text nor an object such as {{"text": "…"}}.')
    return document
