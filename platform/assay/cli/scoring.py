"""``assay rerank``, ``assay score``, ``assay embed``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from assay.cli.inputs import (
    DocumentsFile,
    DocumentTexts,
    Fields,
    FormatOption,
    Model,
    Settings,
    documents_of,
    rank_fields,
    set_id,
    settings_of,
)
from assay.cli.output import AsJson, show_json, show_rows
from assay.client import Client
from assay.client.shapes import Document


def add_to(app: typer.Typer) -> None:
    for command in (rerank, rank, score, embed):
        app.command()(command)


def rerank(
    query: str, file: DocumentsFile = None, document: DocumentTexts = None,
    top_n: Annotated[int | None, typer.Option("--top-n", "-n", help="Only the best so many.")] = None,
    model: Model = None, field: Fields = None, format: FormatOption = None, settings: Settings = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank documents by their relevance to a query, the best first.

    \b
    assay rerank "how do I stop a nosebleed?" advice.txt --top-n 3
    assay rerank "capital of Peru?" -d "Cats purr." -d "Lima is the capital."
    jq -c .paragraphs[] page.json | assay rerank "capital?" - --format jsonl --json
    """
    documents = documents_of(file, document, format, field)
    fields = {**rank_fields(documents, field), **settings_of(settings, taken=("query", "documents", "model", "top_n"))}
    with Client() as client:
        answer = client.rerank(query, documents, model=model, top_n=top_n, **fields)
    if as_json:
        return show_json(answer)
    rows = ((result["relevance_score"], *_named(documents, result["index"], field)) for result in answer["results"])
    show_rows(("score", "document", "text"), rows)


def rank(
    document_set: Annotated[
        str, typer.Argument(help="Its id, as `assay sets list documents` shows it.", callback=set_id)
    ],
    query: str,
    top_n: Annotated[int | None, typer.Option("--top-n", "-n", help="Only the best so many.")] = None,
    bm25: Annotated[int | None, typer.Option("--bm25", help="Only the best so many by BM25 are ranked.")] = None,
    id: Annotated[list[str] | None, typer.Option("--id", help="Only this document; may be repeated.")] = None,
    texts: Annotated[bool, typer.Option("--texts", help="Show the documents' texts too.")] = False,
    model: Model = None, settings: Settings = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank the documents of an uploaded set by their relevance to a query, the best first.

    \b
    assay rank 01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11 "how do I descale a kettle?" --top-n 10 --texts
    """
    fields = settings_of(settings, taken=("query", "candidates", "model", "top_n", "return_documents"))
    with Client() as client:
        answer = client.rank(
            document_set, query, model=model, ids=id, bm25=bm25, top_n=top_n, return_documents=texts, **fields
        )
    if as_json:
        return show_json(answer)
    rows = (
        (result["score"], result["id"], *([result["document"]["text"]] if texts else []))
        for result in answer["results"]
    )
    show_rows(("score", "document", *(["text"] if texts else [])), rows)


def score(
    file: DocumentsFile = None,
    query: Annotated[list[str] | None, typer.Option("--query", "-q", help="A query; may be repeated.")] = None,
    document: DocumentTexts = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="Every query with every document.")] = False,
    model: Model = None, field: Fields = None, format: FormatOption = None, settings: Settings = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Score a query with every document, or query i with document i, in the order given.

    \b
    assay score -q "capital of Peru?" answers.txt
    assay score -q "bees" -q "bridges" -d "Bees make honey." -d "It is closed." --matrix
    """
    if not query:
        raise typer.BadParameter("No query: give one or more with --query.")
    documents = documents_of(file, document, format, field)
    fields = {**rank_fields(documents, field), **settings_of(settings, taken=("queries", "documents", "model", "mode"))}
    with Client() as client:
        answer = client.score(query, documents, mode="matrix" if matrix else "pairs", model=model, **fields)
    if as_json:
        return show_json(answer)
    show_rows(
        ("score", "query", "document", "text"),
        (
            (item["score"], query[_query_of(item["index"], len(query), len(documents), matrix)],
             *_named(documents, item["index"] % len(documents), field))
            for item in answer["data"]
        ),
    )  # fmt: skip


def embed(
    file: DocumentsFile = None, document: DocumentTexts = None, model: Model = None,
    input_type: Annotated[str | None, typer.Option(help="query or document.")] = None,
    format: FormatOption = None, settings: Settings = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Embed texts: one vector a line, as a JSON list.

    \b
    assay embed sentences.txt --model minilm > vectors.jsonl
    """
    texts = [
        each if isinstance(each, str) else str(each.get("text", ""))
        for each in documents_of(file, document, format, None)
    ]
    fields = settings_of(settings, taken=("texts", "model", "input_type"))
    with Client() as client:
        answer = client.embed(texts, model=model, input_type=input_type, **fields)
    if as_json:
        return show_json(answer)
    for item in answer["data"]:
        typer.echo(json.dumps(item["embedding"]))


def _query_of(index: int, queries: int, documents: int, matrix: bool) -> int:
    return index // documents if matrix else min(index, queries - 1)


def _named(documents: Sequence[Document], index: int, fields: Sequence[str] | None) -> tuple[Any, str]:
    """A document's own id, else its number from 1 on, and its text."""
    document = documents[index]
    if isinstance(document, str):
        return index + 1, document
    return document.get("id", index + 1), " ".join(str(document.get(name, "")) for name in fields or ["text"])
