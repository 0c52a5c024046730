"""“Try it”, where no worker answers: what running ones answer is seen in a browser, in the end-to-end tests."""

from __future__ import annotations

import json
import shlex

from django.test import Client
from django.urls import reverse

from scoring.models import ScoreRequest, Worker
from tests.web.conftest import World, text_of

CALL = {"model": "late", "query": "it's a tick", "documents": "pull it\n\nboil it\n"}


def test_a_refusal_is_shown_with_what_was_typed(browser_client: Client, world: World) -> None:
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    page = text_of(browser_client.post(reverse("web:try"), CALL))
    assert "no worker is running" in page and "it&#x27;s a tick</textarea>" in page
    stored = ScoreRequest.objects.get()
    assert (stored.status_code, stored.error_code, stored.document_count) == (503, "no_worker", 2)
    assert "no_worker" in text_of(browser_client.get(reverse("web:score_request_detail", args=[stored.pk])))


def test_the_curl_command_says_the_same(browser_client: Client, world: World) -> None:
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    response = browser_client.post(reverse("web:try"), CALL)
    words = shlex.split(response.context["curl"].replace("\\\n", " "))
    assert words[:2] == ["curl", "http://testserver/rerank"]
    body = json.loads(words[words.index("-d") + 1])
    assert body == {"model": "late", "query": "it's a tick", "documents": ["pull it", "boil it"]}


def test_what_is_missing_is_said(browser_client: Client, world: World) -> None:
    page = text_of(browser_client.post(reverse("web:try"), {**CALL, "documents": " \n "}))
    assert "Give at least one document" in page or "This field is required" in page
    assert not ScoreRequest.objects.exists()
