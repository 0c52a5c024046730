"""“Try it”, where no worker answers: what running ones answer is seen in a browser, in the end-to-end tests."""

from __future__ import annotations

import ast
import json
import shlex

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from audit.models import AuditEvent
from scoring.models import PlaygroundExample, ScoreRequest, Worker
from scoring.models.scoring_model import ModelKind
from scoring.web.playground_form import documents_of, typed
from tests.web import factories
from tests.web.conftest import World, text_of

CALL = {"model": "late", "query": "it's a tick", "documents": "pull it\n\nboil it\n"}


def test_refusals_are_shown_in_place_with_what_was_typed(browser_client: Client, world: World, analyst: User) -> None:
    factories.served_model(analyst, world.worker, name="judge", kind=ModelKind.GENERATIVE)
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    response = browser_client.post(reverse("web:try"), {**CALL, "model": ["late", "judge"]})
    page = text_of(response)
    assert page.count("no worker is running") == 2 and "it&#x27;s a tick</textarea>" in page
    stored = ScoreRequest.objects.get(model_name="late")
    assert (stored.status_code, stored.error_code, stored.document_count) == (503, "no_worker", 2)
    assert "no_worker" in text_of(browser_client.get(reverse("web:score_request_detail", args=[stored.pk])))


def test_the_calls_say_what_was_asked(browser_client: Client, world: World, analyst: User) -> None:
    factories.served_model(analyst, world.worker, name="judge", kind=ModelKind.GENERATIVE)
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    options = {"instruction": "Only ticks", "labels": "yes, no", "template": "{{ query }} {{ item }}"}
    response = browser_client.post(reverse("web:try"), {**CALL, "model": ["late", "judge"], **options})
    bodies = []
    for each in response.context["answers"]:
        words = shlex.split(each.curl.replace("\\\n", " "))
        bodies.append((words[1].removeprefix("http://testserver"), json.loads(words[words.index("-d") + 1])))
        texts = [node.value for node in ast.walk(ast.parse(each.python)) if isinstance(node, ast.Constant)]
        assert {"it's a tick", "pull it", "boil it", each.model.name, "YOUR_TOKEN"} <= {*map(str, texts)}
    query, documents = "it's a tick", ["pull it", "boil it"]
    assert bodies == [
        (
            "/v1/rerank",
            {"model": "late", "query": query, "documents": documents, "instruction": "Only ticks"},
        ),
        (
            "/generative_scoring",
            {"model": "judge", "query": query, "items": documents, "labels": ["yes", "no"],
             "template": "{{ query }} {{ item }}"},
        ),
    ]  # fmt: skip


def test_what_is_missing_is_said(browser_client: Client, world: World) -> None:
    for wrong, told in (
        ({"documents": " \n "}, "Give at least one document"),
        ({"documents": "---\n---"}, "Give at least one document"),
        ({"labels": "yes"}, "give two"),
        ({"model": []}, "Choose one model"),
    ):
        page = text_of(browser_client.post(reverse("web:try"), {**CALL, **wrong}))
        assert told in page, wrong
    assert not ScoreRequest.objects.exists()


def test_documents_of_several_lines_are_typed_and_read_alike() -> None:
    for documents in (["one", "two"], ["one\ntwo"], ["one\n\ntwo", "three"]):
        assert documents_of(typed(documents)) == documents


def test_a_saved_example_is_shared_copied_and_deleted(
    browser_client: Client, stranger: Client, caller: Client, world: World
) -> None:
    fields = {**CALL, "instruction": "Only ticks", "title": "Ticks"}
    permalink = browser_client.post(reverse("web:example_save"), fields)["Location"]
    example = PlaygroundExample.objects.get()
    assert permalink == f"/try/{example.short_id}/" and len(example.short_id) == 10
    page = caller.get(permalink)  # a colleague
    assert "Ticks" in text_of(page) and "Open a copy" in text_of(page) and "by analyst" in text_of(page)
    copied = caller.get(reverse("web:try"), {"copy": example.short_id}).context["form"].initial
    assert copied["model"] == ["late"] and documents_of(copied["documents"]) == ["pull it", "boil it"]
    assert copied["instruction"] == "Only ticks"
    assert stranger.get(permalink).status_code == stranger.post(permalink, CALL).status_code == 404
    assert stranger.get(reverse("web:try"), {"copy": example.short_id}).status_code == 404
    assert stranger.post(reverse("web:example_delete", args=[example.short_id])).status_code == 404
    assert not ScoreRequest.objects.exists()
    browser_client.post(reverse("web:example_delete", args=[example.short_id]))
    assert not PlaygroundExample.objects.exists()
    assert AuditEvent.objects.filter(verb__startswith="example.").count() == 2


def test_a_kept_request_opens_with_its_texts_or_says_that_they_are_not_kept(
    browser_client: Client, stranger: Client, world: World
) -> None:
    row = ScoreRequest.objects.create(
        team=world.job.team, model_name="late", endpoint="/v1/score", status_code=200, queries=["a", "b"],
        documents=["x\ny", "z"], report={"pairing": "pairwise"},
    )  # fmt: skip
    opened = reverse("web:try") + f"?request={row.pk}"
    assert opened in browser_client.get(reverse("web:score_request_detail", args=[row.pk])).content.decode()
    page = browser_client.get(opened)
    assert page.context["form"].initial["query"] == "a" and "It had 2 queries" in text_of(page)
    assert documents_of(page.context["form"].initial["documents"]) == ["x\ny"]
    ScoreRequest.objects.update(queries=None, documents=None)
    page = browser_client.get(opened)
    assert "The texts of this request are not kept" in text_of(page)
    assert page.context["form"].initial == {"model": ["late"]}
    assert stranger.get(opened).status_code == browser_client.get(reverse("web:try") + "?request=7").status_code == 404


def test_several_models_are_asked_by_a_request_each(browser_client: Client, world: World, analyst: User) -> None:
    """With scripts: the columns come at once, empty, and each asks for its own answer."""
    factories.served_model(analyst, world.worker, name="other")
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    asked = {"model": ["late", "other"], "query": "tick", "documents": "Pull the tick out.\nDescale the kettle."}
    page = browser_client.post("/try/", asked, headers={"HX-Request": "true"}).content.decode()
    assert page.count('hx-post="/try/column/"') == 2 and page.count("Waiting for its answer") == 2
    column = browser_client.post("/try/column/", {**asked, "column": "other", "place": "2"})
    text = column.content.decode()  # no worker is there: it says so in its own column, and asks no more
    assert column.status_code == 200 and 'id="answer-2"' in text and 'role="alert"' in text and "hx-post" not in text
    for wrong in ({"column": "nobody"}, {"column": "late", "model": ["other"]}, {}):
        assert browser_client.post("/try/column/", {**asked, **wrong}).status_code == 404
