"""The names of a model on its page."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from scoring.models import ModelAlias
from tests.web import factories
from tests.web.conftest import World


def test_an_alias_is_pointed_moved_and_deleted(admin_page: Client, world: World, analyst: User) -> None:
    factories.served_model(analyst, world.worker, name="other")
    said = admin_page.post("/models/late/alias/", {"alias": "production"}, follow=True).content.decode()
    assert "“production” points at “late” now" in said and "before at" not in said
    assert admin_page.get("/models/production/").context["model"].name == "late"
    moved = admin_page.post("/models/other/alias/", {"alias": "production"}, follow=True).content.decode()
    assert ModelAlias.objects.get().model.name == "other" and "production, before at late" in moved  # the log
    assert "production" in admin_page.get("/models/").content.decode()
    for name, why in (
        ("late", "A model is called “late” itself"),
        ("no good", "cannot be an alias"),
        ("LATE", "A model is called “late” itself"),
        ("New", "is the address of a page"),
        ("Production", "There is an alias"),
    ):
        refused = admin_page.post("/models/other/alias/", {"alias": name}, follow=True).content.decode()
        assert why.replace("“late”", "&#x27;late&#x27;") in refused
    assert admin_page.post("/models/late/alias/production/delete/").status_code == 404  # it is the other's
    admin_page.post("/models/other/alias/production/delete/")
    assert not ModelAlias.objects.exists()


def test_an_analyst_sees_names_and_changes_none(browser_client: Client, world: World) -> None:
    assert "Point it here" not in browser_client.get("/models/late/").content.decode()
    assert browser_client.post("/models/late/alias/", {"alias": "mine"}).status_code == 403
    assert not ModelAlias.objects.exists()
