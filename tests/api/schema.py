"""Check answers against the platform's own OpenAPI document."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema
from drf_spectacular.generators import SchemaGenerator


@cache
def document() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of every operation."""
    return [
        (method, path, operation) for path, item in document()["paths"].items() for method, operation in item.items()
    ]


def check(response: Any, *, method: str = "get") -> Any:
    """``response`` (Django's or httpx's) must be one that the document describes. Returns its JSON."""
    path = getattr(getattr(response, "request", {}), "url", None)
    path = path.path if path is not None else response.request["PATH_INFO"]
    body = response.json()
    described = _operation(method, path)["responses"][str(response.status_code)]
    validate(body, described["content"]["application/json"]["schema"])
    return body


def optional_fields(path: str, method: str) -> list[str]:
    """Of the first shape of body that ``path`` takes: fields that may be left out, each by its own name."""
    shape = document()["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    while "properties" not in shape:
        reference = shape.get("anyOf", [shape])[0]["$ref"]
        shape = document()["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    others = [name for name, field in shape["properties"].items() if "Another name" in field.get("description", "")]
    return [name for name in shape["properties"] if name not in [*shape.get("required", []), *others]]


def validate(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document()["components"]}).validate(value)


def _operation(method: str, path: str) -> dict[str, Any]:
    for known_method, template, operation in operations():
        pattern = re.sub(r"\{\w+\}", "[^/]+", template)
        literal = template == path
        if known_method == method and (literal or (re.fullmatch(pattern, path) and not _is_literal(path))):
            return operation
    raise AssertionError(f"{method.upper()} {path} is not in the schema.")


def _is_literal(path: str) -> bool:
    return path in document()["paths"]
