"""The call that gets the same answer over HTTP, as a command and in Python. The token is whoever's calls it."""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Mapping
from typing import Any

from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind

OPTIONS = {True: ("labels", "template"), False: ("instruction",)}  # by whether the model is generative


def options_taken(model: ScoringModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options given for all models those that are for this one."""
    return {name: options[name] for name in OPTIONS[model.kind == ModelKind.GENERATIVE] if name in options}


def curl(model: ScoringModel, query: str, documents: list[str], options: Mapping[str, Any], *, server: str) -> str:
    generative = model.kind == ModelKind.GENERATIVE
    texts = "items" if generative else "documents"
    body = {"model": model.name, "query": query, texts: documents, **options_taken(model, options)}
    return " \\\n  ".join(
        [
            f"curl {server}{'/generative_scoring' if generative else '/v1/rerank'}",
            '-H "Authorization: Bearer $ASSAY_TOKEN"',
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(body, ensure_ascii=False, indent=2))}",
        ]
    )


def python(model: ScoringModel, query: str, documents: list[str], options: Mapping[str, Any], *, server: str) -> str:
    generative = model.kind == ModelKind.GENERATIVE
    given = {"model": model.name, **options_taken(model, options)}
    named = "".join(f"        {name}={value!r},\n" for name, value in given.items())
    shown = "item['index'], item['score']" if generative else "item['index'], item['relevance_score']"
    items = "answer['data']" if generative else "answer['results']"
    return (
        "from assay.client import Client\n\n"
        f"documents = {pprint.pformat(documents, width=100)}\n\n"
        f'with Client({server!r}, token="YOUR_TOKEN") as assay:\n'
        f"    answer = assay.{'generative' if generative else 'rerank'}(\n"
        f"        {query!r},\n        documents,\n{named}    )\n"
        f"    for item in {items}:\n        print({shown})\n"
    )
