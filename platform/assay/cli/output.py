"""How answers are shown: JSON for programs, aligned columns on a terminal, tabs in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

import typer

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Limit = Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")]


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def show_rows(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    if not sys.stdout.isatty():
        for row in (headings, *rows):
            typer.echo("\t".join(map(cell, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    Console().print(table)


def show_fields(fields: Mapping[str, Any]) -> None:
    """One thing, a field a line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else cell(value)
        typer.echo(f"{name:{width}}  {text}")


def cell(value: Any) -> str:
    """Texts come from anywhere: nothing in them may steer the terminal or begin a new line."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
        case _:
            return "".join(letter if letter.isprintable() else " " for letter in str(value))


def first(items: Iterator[T], limit: int) -> list[T]:
    return list(islice(items, limit or None))


def say(line: str) -> None:
    """Beside the answer: what goes on, on standard error."""
    typer.echo(line, err=True)
