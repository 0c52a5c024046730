"""Tables as files: said before the click, streamed while small, made in the background when large."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pyarrow import parquet
from pytest_django import Settings

from accounts.models import Membership, Team
from accounts.scopes import Role
from audit.models import AuditEvent
from scoring.models import Export, ScoreRequest
from scoring.services.exports import export_claim, export_make, exports_expire, exports_reclaim
from scoring.services.retention import texts_delete
from scoring.states import ExportState
from tests.web import factories
from tests.web.conftest import World, text_of


def body(response: Any) -> bytes:
    assert response.status_code == 200, response.content[:300]
    return b"".join(response.streaming_content)


def address(world: World, source: str = "documents", **parameters: Any) -> str:
    query = "&".join(f"{name}={value}" for name, value in {"set": world.documents.pk, **parameters}.items())
    return f"{reverse('web:export', args=[source])}?{query}"


def claimed() -> Export:
    export = export_claim()
    assert export is not None
    return export


def made(client: Client, url: str) -> Export:
    """Asked for in the background, and made as the reconciler makes it."""
    assert client.post(url)["Location"] == reverse("web:export_list")
    export = export_claim()
    assert export is not None and export_make(export) == ExportState.DONE
    export.refresh_from_db()
    return export


def test_a_menu_says_rows_and_formats_of_what_is_filtered(browser_client: Client, world: World) -> None:
    page = browser_client.get(reverse("web:job_list"), {"name": world.job.name, "sort": "name", "columns": "name"})
    assert [choice.format for choice in page.context["exports"]] == ["CSV", "JSON lines", "Parquet"]
    assert "1 row, safe for spreadsheets" in text_of(page)
    url = page.context["exports"][0].url
    assert url.startswith("/export/jobs/?name=") and "sort" not in url and "columns" not in url
    assert body(browser_client.get(url)).decode().count("\n") == 2
    assert browser_client.get(reverse("web:job_list"), {"name": "no such"}).context["exports"] == []
    assert AuditEvent.objects.get(verb="table.exported").detail == {"table": "jobs", "format": "csv"}


def test_every_format_holds_every_row(browser_client: Client, world: World) -> None:
    rows = body(browser_client.get(address(world, format="jsonl"))).decode().splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["d1", "d2", "d3"]
    found = body(browser_client.get(address(world, format="csv", search="kettle"))).decode()
    assert found.startswith("\ufeff") and "Descale" in found and "tweezers" not in found
    ScoreRequest.objects.create(team=world.job.team, endpoint="=SUM(1)", model_name="late", status_code=200)
    table = parquet.read_table(
        io.BytesIO(body(browser_client.get(reverse("web:export", args=["score-requests"]) + "?format=parquet")))
    )
    assert table.num_rows == 1 and str(table.schema.field("created_at").type) == "timestamp[us, tz=UTC]"
    assert "'=SUM(1)" in body(browser_client.get(reverse("web:export", args=["score-requests"]))).decode()
    qrels = reverse("web:export", args=["judgements"]) + f"?set={world.judgements.pk}&format=trec"
    assert body(browser_client.get(qrels)).decode() == factories.JUDGEMENTS


def test_a_large_table_is_made_in_the_background_for_its_owner(
    browser_client: Client, world: World, settings: Settings
) -> None:
    settings.EXPORT_ROWS = 2
    page = browser_client.get(reverse("web:set_detail", args=["document-sets", world.documents.pk]))
    assert all(choice.background for choice in page.context["exports"])
    assert "3 rows, safe for spreadsheets, made in the background" in text_of(page)
    refused = browser_client.get(address(world))
    assert refused.status_code == 409 and "made in the background" in text_of(refused)
    export = made(browser_client, address(world, format="jsonl"))
    assert (export.rows_done, export.rows_total, export.attempts) == (3, 3, 1)
    listed = browser_client.get(reverse("web:export_list"))
    assert "Documents of a set, JSON lines" in text_of(listed) and "hx-trigger" not in text_of(listed)
    file = reverse("web:export_file", args=[export.pk])
    content = body(browser_client.get(file))
    assert content.count(b"\n") == 3 and len(content) == export.size
    colleague = User.objects.create_user("colleague")
    Membership.objects.create(user=colleague, team=world.job.team, role=Role.ADMIN)
    other = Client()
    other.force_login(colleague)
    assert other.get(file).status_code == 404
    assert other.post(reverse("web:export_delete", args=[export.pk])).status_code == 404
    assert "Documents of a set" not in text_of(other.get(reverse("web:export_list")))


def test_what_a_killed_maker_began_is_made_anew_and_then_given_up(browser_client: Client, world: World) -> None:
    browser_client.post(address(world, format="csv"))
    export = Export.objects.get()
    for attempt in (1, 2, 3):
        export = claimed()
        assert export.attempts == attempt and export_claim() is None
        Export.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        assert exports_reclaim() == 1
    # The one that was thought dead and went on changes nothing, and leaves no file.
    assert export_make(export) == ExportState.RUNNING
    export.refresh_from_db()
    assert export.state == ExportState.FAILED and "ended 3 times" in export.error and not export.file


def test_files_end_with_their_time_and_with_the_texts_in_them(
    browser_client: Client, world: World, analyst: User, django_capture_on_commit_callbacks: Any
) -> None:
    rankings = reverse("web:export", args=["results"]) + f"?job={world.job.pk}&format=csv"
    exports = [made(browser_client, url) for url in (address(world), rankings, reverse("web:export", args=["jobs"]))]
    paths = [Path(export.file.path) for export in exports]
    with django_capture_on_commit_callbacks(execute=True):
        assert exports_expire() == 0
        texts_delete(principal=factories.principal(analyst), uploaded=world.documents)
        assert exports_expire() == 2
    assert [path.exists() for path in paths] == [False, False, True]
    Export.objects.update(expires_at=timezone.now())
    assert browser_client.get(reverse("web:export_file", args=[exports[2].pk])).status_code == 404
    with django_capture_on_commit_callbacks(execute=True):
        assert exports_expire() == 1
    assert not paths[2].exists()


def test_whoever_lost_the_right_gets_no_file(browser_client: Client, world: World, analyst: User) -> None:
    browser_client.post(address(world))
    Membership.objects.filter(user=analyst).update(role=Role.CLIENT)
    export = export_claim()
    assert export is not None and export_make(export) == ExportState.FAILED
    assert "needs the scope 'jobs'" in Export.objects.get().error


@pytest.mark.parametrize(
    ("source", "parameters", "status"),
    [
        ("documents", "", 422),
        ("documents", "set=7", 404),
        ("jobs", "stat=failed", 422),
        ("jobs", "state=no", 422),
        ("audit-events", "", 403),
        ("jobs", "format=trec", 422),
        ("usage", "first=2026-01-01&last=soon", 422),
        ("nothing", "", 404),
    ],
)
def test_what_cannot_be_exported_is_said(
    source: str, parameters: str, status: int, browser_client: Client, world: World
) -> None:
    url = f"{reverse('web:export', args=[source])}?{parameters}"
    assert browser_client.get(url).status_code == status
    assert browser_client.post(url).status_code == status
    assert not Export.objects.exists()


def test_another_teams_rows_are_not_found(stranger: Client, world: World) -> None:
    for source, parameters in (
        ("documents", f"set={world.documents.pk}"),
        ("judgements", f"set={world.judgements.pk}"),
        ("results", f"job={world.job.pk}"),
    ):
        url = f"{reverse('web:export', args=[source])}?{parameters}"
        assert stranger.get(url).status_code == stranger.post(url).status_code == 404
    assert body(stranger.get(reverse("web:export", args=["jobs"]))).decode().count("\n") == 1


def test_the_api_makes_the_same_files(api_with: Any, world: World, team: Team) -> None:
    api = api_with("jobs")
    ask = {"table": "documents", "format": "csv", "parameters": {"set": str(world.documents.pk)}}
    answer = api.post("/api/v1/exports", ask)
    assert answer.status_code == 201 and answer.json()["state"] == "waiting"
    one = answer["Location"]
    assert api.get(f"{one}/content").status_code == 409
    export = export_claim()
    assert export is not None and export_make(export) == ExportState.DONE
    assert api.get(one).json()["rows_done"] == 3
    assert b"tweezers" in body(api.get(f"{one}/content"))
    assert api_with("jobs").get(one).status_code == 404  # another token of the same team
    for wrong in ({"table": "tables"}, {"parameters": {"sets": 1}}, {"format": "xlsx"}):
        assert api.post("/api/v1/exports", ask | wrong).status_code == 422
    assert api.post("/api/v1/exports", {"table": "usage", "format": "csv"}).status_code == 403
    assert api.delete(one).status_code == 204 and api.get(one).status_code == 404
