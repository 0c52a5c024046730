"""Pools and judging as pages: made, judged without scripts and with, published; and the shortcut on results."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scoring.models import Document, JudgementSet, Pool, PoolPair, Query, Verdict, VerdictSource
from scoring.selectors.pools import PairShown
from scoring.web.judging import terms_marked
from tests.web.conftest import World, text_of
from tests.web.test_pages import assert_clean

FRAGMENT = {"HX-Request": "true"}


@pytest.fixture
def pool(browser_client: Client, world: World) -> Pool:
    made = browser_client.post(_new(world), {"stages": [world.job.last_stage.pk], "k": 3, "quorum": 1})
    assert made.status_code == 302, text_of(made)
    return Pool.objects.get()


def _new(world: World, **parameters: Any) -> str:
    return reverse("web:pool_new", query={"stage": world.job.last_stage.pk, **parameters})


def _pair(response: Any) -> str:
    found = re.search(r'name="pair" value="(\d+)"', response.content.decode())
    assert found is not None
    return found[1]


def test_a_pool_says_its_size_before_it_is_made(browser_client: Client, world: World) -> None:
    page = browser_client.get(_new(world, k=3, base=world.judgements.pk))
    assert_clean(page)
    assert "<strong>1</strong> pair<span" in text_of(page)  # three of the four with text are graded
    fields = {"stages": [world.job.last_stage.pk], "k": 3, "quorum": 1}
    size = browser_client.post(_new(world), fields, headers={**FRAGMENT, "HX-Target": "size"})
    assert "<strong>4</strong> pairs" in text_of(size) and "<html" not in size.content.decode()
    assert "<strong>2</strong> pairs" in text_of(browser_client.get(_new(world, query="q1", base="")))
    refused = browser_client.post(_new(world), {**fields, "scale": "only one"})
    assert refused.status_code == 422 and "give 2 to 6 names" in text_of(refused)
    assert not Pool.objects.exists()


def test_a_pool_is_judged_without_scripts_and_published(browser_client: Client, world: World, pool: Pool) -> None:
    judge, seen = reverse("web:pool_judge", args=[pool.pk]), set()
    for do, said in (("2", "relevant."), ("cannot", "cannot be judged"), ("later", "Put off"), ("0", "not relevant")):
        page = browser_client.get(judge)
        assert_clean(page)
        assert "bm25" not in text_of(page).lower() and "rank" not in text_of(page).lower()
        done = browser_client.post(judge, {"do": do, "pair": _pair(page)}, follow=True)
        assert said in text_of(done)
        seen.add(_pair(page))
    assert len(seen) == 4
    assert "Taken back" in text_of(browser_client.post(judge, {"do": "undo"}, follow=True))
    browser_client.post(judge, {"do": "1", "pair": _pair(browser_client.get(judge))})
    browser_client.post(judge, {"do": "3", "pair": _pair(browser_client.get(judge))})
    assert "Nothing is left for you" in text_of(browser_client.get(judge))

    detail = browser_client.get(reverse("web:pool_detail", args=[pool.pk]))
    assert_clean(detail)
    assert "Publish as version 1 (3 new grades)" in text_of(detail)
    published = browser_client.post(reverse("web:pool_publish", args=[pool.pk]), follow=True)
    assert "Version 1 is there, with 3 new grades." in text_of(published)
    assert JudgementSet.objects.exclude(pk=world.judgements.pk).get().counts["kept"] == 3


def test_with_scripts_the_next_pair_comes_as_a_fragment(browser_client: Client, pool: Pool) -> None:
    judge = reverse("web:pool_judge", args=[pool.pk])
    first = _pair(browser_client.get(judge))
    answer = browser_client.post(judge, {"do": "1", "pair": first}, headers=FRAGMENT)
    assert "<html" not in answer.content.decode() and "Saved:" in text_of(answer) and _pair(answer) != first
    refused = browser_client.post(judge, {"do": "5", "pair": _pair(answer)}, headers=FRAGMENT)
    assert "The grade is 5; give 0 to 3" in text_of(refused)
    assert browser_client.post(judge, {"do": "x", "pair": first}).status_code == 404


def test_the_words_of_the_query_are_marked_and_all_else_is_escaped() -> None:
    shown = PairShown(PoolPair(), Query(text="a <b> Tick?"), Document(text="<b>tick</b> ticks & TICK"))
    assert terms_marked(shown) == "&lt;b&gt;<mark>tick</mark>&lt;/b&gt; ticks &amp; <mark>TICK</mark>"


def test_many_are_judged_on_one_page(browser_client: Client, pool: Pool) -> None:
    bulk = reverse("web:pool_bulk", args=[pool.pk])
    page = browser_client.get(bulk)
    assert_clean(page)
    fields = list(dict.fromkeys(re.findall(r'name="(grade-\d+)"', page.content.decode())))
    assert len(fields) == 4
    row = browser_client.post(bulk, {fields[0]: "2"}, headers=FRAGMENT)
    assert text_of(row).strip() == "saved"
    browser_client.post(bulk, {fields[1]: "cannot", fields[2]: "0", fields[3]: ""})
    assert sorted(Verdict.objects.values_list("grade", flat=True), key=str) == [0, 2, None]


def test_a_document_of_a_result_is_judged_as_seen(browser_client: Client, world: World, analyst: User) -> None:
    address = reverse("web:result_judge", args=[world.job.pk])
    answer = browser_client.post(address, {"query": 0, "document": 0, "relevant": "yes"}, follow=True)
    assert "is kept in the pool “Seen in results for Questions”" in text_of(answer)
    verdict = Verdict.objects.get()
    assert (verdict.grade, verdict.source, verdict.judge.user) == (3, VerdictSource.SEEN, analyst)
    detail = text_of(browser_client.get(reverse("web:pool_detail", args=[verdict.pair.pool_id])))
    assert "Leave out what was seen ranked (0 new grades without it)" in detail


def test_pools_belong_to_their_team(stranger: Client, world: World, pool: Pool) -> None:
    for name in ("pool_detail", "pool_judge", "pool_bulk"):
        assert stranger.get(reverse(f"web:{name}", args=[pool.pk])).status_code == 404
    for name in ("pool_publish", "pool_close", "pool_delete"):
        assert stranger.post(reverse(f"web:{name}", args=[pool.pk])).status_code == 404
    assert stranger.get(_new(world)).status_code == 404
    assert "First 3" not in text_of(stranger.get(reverse("web:pool_list")))
