"""The part of a document set's page that has it encoded ahead."""

from __future__ import annotations

from typing import Any

from django.test import Client

from scoring.models import SetEncoding
from scoring.states import EncodingState
from tests.web.conftest import World


def test_the_page_says_what_it_takes_and_shows_the_progress(
    browser_client: Client, world: World, django_assert_max_num_queries: Any
) -> None:
    page = f"/document-sets/{world.documents.pk}/"
    part = f"{page}encodings/"
    with django_assert_max_num_queries(21):
        shown = browser_client.get(page, {"encoder": "late"}).content.decode()
    assert "Encoded ahead" in shown and "about" in shown and "Each worker that holds the model" in shown
    answer = browser_client.post(f"{page}encode/", {"encoder": "late"}, follow=True).content.decode()
    assert "A worker encodes “Advice” by “late”" in answer and "waiting for the model" in answer
    encoding = SetEncoding.objects.get()
    assert encoding.worker == world.worker  # that holds the model
    assert 'hx-trigger="every 2s"' in browser_client.get(part).content.decode()

    SetEncoding.objects.update(state=EncodingState.RUNNING, documents_done=2, size=2048, boot_id=world.worker.boot_id)
    assert "2 of 3 documents" in browser_client.get(part).content.decode()
    assert browser_client.get(part, {"renew": ""}).status_code == 200
    browser_client.post(f"/encodings/{encoding.pk}/cancel/")
    assert browser_client.get(part, {"renew": ""}).status_code == 286  # nothing is under way any more
    again = browser_client.post(f"/encodings/{encoding.pk}/cancel/", follow=True).content.decode()
    assert "there is nothing to stop" in again
    browser_client.post(f"/encodings/{encoding.pk}/delete/")
    assert not SetEncoding.objects.exists()
    nobody = browser_client.post(f"{page}encode/", {"encoder": "nobody"}, follow=True).content.decode()
    assert "is no model that can encode ahead" in nobody
