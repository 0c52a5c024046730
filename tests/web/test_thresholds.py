"""The page of cut-offs: measured, chosen, kept as advice, withdrawn."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scoring.models import ThresholdAdvice
from tests.web.conftest import World, text_of


@pytest.fixture
def pages(analyst: User) -> Client:
    client = Client()
    client.force_login(analyst)
    return client


@pytest.fixture
def address(world: World) -> str:
    return f"/models/late/thresholds/?stage={world.job.last_stage.pk}&judgement_set={world.judgements.pk}"


def test_a_cut_off_is_measured_kept_and_withdrawn(pages: Client, world: World, address: str) -> None:
    """Judged are d1 (relevant) and d2 (not) of one query, d2 (relevant) of the other."""
    page = pages.get(address)
    said = text_of(page)
    assert page.status_code == 200 and "of 4 scored ones, of 2 queries" in said and "0.667" in said
    assert "A maxsim is a sum over the tokens of the query" in said and "2 queries are few" in said
    highest = page.context["report"].best
    assert (highest.precision.value, highest.recall.value) == (1, 1)
    kept = pages.post(address, {"score": str(highest.score), "note": "for the help desk"})
    assert kept.status_code == 302
    advice = ThresholdAdvice.objects.get()
    assert (advice.score, advice.note, advice.evidence["pairs"]) == (highest.score, "for the help desk", 3)
    for path in ("/models/late/thresholds/", "/models/late/"):
        said = text_of(pages.get(path))
        assert "in force" in said and "for the help desk" in said and "3 judged pairs of 2 queries" in said
    assert pages.post(f"/threshold-advice/{advice.pk}/delete/").status_code == 302
    assert not ThresholdAdvice.objects.exists()


def test_what_cannot_be_kept_is_said_beside_the_field(pages: Client, address: str) -> None:
    answer = pages.post(address, {"score": "nan"})
    assert answer.status_code == 422 and not ThresholdAdvice.objects.exists()
    assert text_of(pages.get(f"{address}&relevant_from=3")).count("no cut-off can be told from another") == 1
    assert pages.get(f"{address}&score=x").status_code == 200


def test_another_team_sees_neither_the_job_nor_the_advice(
    pages: Client, stranger: Client, address: str, world: World, analyst: User
) -> None:
    assert pages.post(address, {"score": "0.5"}).status_code == 302
    said = text_of(stranger.get(address))
    assert "Select a valid choice" in said and "None yet" in said
    assert stranger.post(f"/threshold-advice/{ThresholdAdvice.objects.get().pk}/delete/").status_code == 404
    assert "Cut-off for scores" in text_of(stranger.get("/models/late/"))


def test_who_may_only_score_sees_no_advice(caller: Client, world: World, address: str) -> None:
    assert caller.get(address).status_code == 403
    assert "Cut-off for scores" not in text_of(caller.get("/models/late/"))
