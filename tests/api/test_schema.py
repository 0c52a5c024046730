from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS

from tests.api.schema import document, operations, validate

OPERATIONS = operations()
IDS = [f"{method} {path}" for method, path, _ in OPERATIONS]


def test_the_schema_is_valid_and_draws_no_warning(tmp_path: Any) -> None:
    GENERATOR_STATS.reset()
    call_command("spectacular", "--validate", "--fail-on-warn", file=str(tmp_path / "schema.yml"))
    assert document()["openapi"].startswith("3.1")


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=IDS)
def test_every_operation_is_described(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["security"] == [{"token": []}, {"session": []}]
    responses = operation["responses"]
    for status in ("401", "403"):
        error = responses[status]["content"]["application/json"]["schema"]
        assert error == {"$ref": "#/components/schemas/Error"}
    good = [response for status, response in responses.items() if status.startswith("2")]
    examples = [media.get("examples") for response in good for media in response.get("content", {}).values()]
    assert any(examples) or method == "delete"
    if body := operation.get("requestBody"):
        assert any(media.get("examples") for media in body["content"].values())


def test_the_examples_are_what_the_schema_says() -> None:
    checked = 0
    for _, _, operation in OPERATIONS:
        described = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media_type, media in (pair for part in described for pair in part.get("content", {}).items()):
            for example in media.get("examples", {}).values() if media_type == "application/json" else ():
                validate(example["value"], media["schema"])
                checked += 1
    assert checked > 40


def test_the_swagger_page_works_under_the_content_security_policy(client: Client) -> None:
    page = client.get("/api/docs/")
    html = page.content.decode()
    policy = page["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe-eval" not in policy
    assert "<script>" not in html and "https://" not in html
    script = client.get("/api/docs/?script=")
    assert script.status_code == 200 and "javascript" in script["Content-Type"]
    assert client.get("/api/schema/").status_code == 200
