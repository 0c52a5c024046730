"""From a file to a set, in three steps, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from scoring.models import Document, DocumentSet, Judgement, JudgementSet, RunEntry, Upload
from scoring.services.retention import retention_apply
from tests.disk import no_file_grows_beyond
from tests.web import factories
from tests.web.conftest import World, text_of

BAD_ROWS = "key,words\na,first text\nb\na,again\nc,third text\n"


@pytest.fixture(autouse=True)
def files(settings: Settings, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path


def stage(client: Client, content: str | bytes, *, kind: str = "document-sets", name: str = "my_texts.csv") -> Any:
    data = content.encode() if isinstance(content, str) else content
    return client.post(reverse("web:upload", args=[kind]), {"file": SimpleUploadedFile(name, data)}, follow=True)


def import_url(kind: str = "document-sets") -> str:
    return reverse("web:upload_import", args=[kind, Upload.objects.get().pk])


def test_the_second_step_shows_what_was_found(browser_client: Client) -> None:
    page = text_of(stage(browser_client, factories.DOCUMENTS))
    assert "read as <strong>CSV, a table with commas or semicolons</strong>" in page
    assert "Pull the tick straight out with tweezers" in page
    assert '<option value="body" selected>body</option>' in page
    assert "Guessed from the name of the column" in page
    assert "Import 3 documents" in page
    assert 'value="My texts"' in page


def test_all_rows_are_imported_and_the_file_is_gone(browser_client: Client) -> None:
    stage(browser_client, factories.DOCUMENTS)
    stored = Path(settings.MEDIA_ROOT) / str(Upload.objects.get().file.name)
    assert stored.exists()
    mapping = {"id": "id", "text": "body", "title": "title"}
    response = browser_client.post(import_url(), {**mapping, "name": "Advice", "do": "import"})
    uploaded = DocumentSet.objects.get()
    assert response["Location"] == reverse("web:set_detail", args=["document-sets", uploaded.pk])
    assert uploaded.name == "Advice" and uploaded.counts["kept"] == 3 and uploaded.file_name == "my_texts.csv"
    assert not Upload.objects.exists()


def test_staged_files_leave_the_storage_with_their_row(
    browser_client: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    stage(browser_client, factories.DOCUMENTS)
    upload = Upload.objects.get()
    stored = Path(settings.MEDIA_ROOT) / str(upload.file.name)
    with django_capture_on_commit_callbacks(execute=True):
        browser_client.post(reverse("web:upload_discard", args=["document-sets", upload.pk]))
    assert not stored.exists() and not Upload.objects.exists() and not DocumentSet.objects.exists()


def test_problems_are_shown_by_line_and_the_good_rows_kept(browser_client: Client) -> None:
    page = text_of(stage(browser_client, BAD_ROWS))
    assert "No column for" in page and "Import" in page and 'value="import"' not in page

    mapping = {"id": "key", "text": "words", "title": ""}
    checked = browser_client.post(import_url(), {**mapping, "name": "x", "do": "check"}, headers={"HX-Request": "true"})
    page = text_of(checked)
    assert "<html" not in page
    assert "line 3" in page and "has 1 column, the header has 2" in page
    assert "line 4" in page and "repeats" in page
    assert "Keep the 2 good rows" in page and 'value="import"' not in page

    browser_client.post(import_url(), {**mapping, "name": "Kept", "do": "keep"})
    assert list(Document.objects.order_by("position").values_list("external_id", flat=True)) == ["a", "c"]
    detail = text_of(
        browser_client.get(reverse("web:set_detail", args=["document-sets", DocumentSet.objects.get().pk]))
    )
    assert "Rows left out" in detail and "line 4" in detail


def test_a_refused_import_keeps_what_was_chosen(browser_client: Client) -> None:
    stage(browser_client, BAD_ROWS)
    mapping = {"id": "key", "text": "words", "title": ""}
    page = text_of(browser_client.post(import_url(), {**mapping, "name": "My name", "do": "import"}))
    assert "2 of 4 rows of my_texts.csv cannot be kept" in page
    assert 'value="My name"' in page and '<option value="words" selected>' in page
    page = text_of(browser_client.post(import_url(), {**mapping, "name": "  ", "do": "keep"}))
    assert "give 1 to 200 characters" in page
    assert not DocumentSet.objects.exists()


def test_the_same_file_again_offers_the_set_that_is_there(browser_client: Client, world: World) -> None:
    page = text_of(stage(browser_client, factories.DOCUMENTS, name="other name.csv"))
    assert "This file is here already" in page
    assert reverse("web:set_detail", args=["document-sets", world.documents.pk]) in page
    assert not Upload.objects.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "The file is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(400), "a PNG picture"),
        (b"id,text\n", "no rows below it"),
        (b'id,text\n1,"open\n2,two\n', "quotation mark"),
    ],
)
def test_what_cannot_be_read_is_said_and_not_kept(browser_client: Client, content: bytes, said: str) -> None:
    page = text_of(stage(browser_client, content))
    assert said in page and "Choose a file" in page
    assert not Upload.objects.exists()


def test_a_file_above_the_limit_is_refused(browser_client: Client, settings: Settings) -> None:
    settings.UPLOAD_MAX_BYTES = 20
    page = text_of(stage(browser_client, factories.DOCUMENTS))
    assert "the limit is 20" in page and not Upload.objects.exists()


def test_judgements_may_be_a_qrels_file(browser_client: Client) -> None:
    page = text_of(stage(browser_client, factories.JUDGEMENTS, kind="judgement-sets", name="qrels.txt"))
    assert "read as <strong>TREC judgements" in page and "Import 3 judgements" in page
    mapping = {"query_id": "query_id", "document_id": "document_id", "grade": "grade"}
    browser_client.post(import_url("judgement-sets"), {**mapping, "name": "Grades", "do": "import"})
    assert JudgementSet.objects.count() == 1 and Judgement.objects.count() == 3


def test_a_run_may_be_a_trec_file(browser_client: Client) -> None:
    page = text_of(stage(browser_client, factories.RUN, kind="run-sets", name="bm25.run"))
    assert "read as <strong>a TREC run" in page and "Import 3 run entries" in page
    mapping = {"query_id": "query_id", "document_id": "document_id", "rank": "rank", "score": "score"}
    browser_client.post(import_url("run-sets"), {**mapping, "name": "BM25", "do": "import"})
    run = RunEntry.objects.first()
    assert run is not None and RunEntry.objects.count() == 3
    detail = text_of(browser_client.get(reverse("web:set_detail", args=["run-sets", run.run_set_id])))
    assert '<th scope="col">Query</th>' in detail and '<td class="num">12.5</td>' in detail
    assert "BM25" in text_of(browser_client.get(reverse("web:set_list", args=["run-sets"])))


def test_htmx_is_sent_on_to_the_next_step(browser_client: Client) -> None:
    response = browser_client.post(
        reverse("web:upload", args=["document-sets"]),
        {"file": SimpleUploadedFile("a.csv", factories.DOCUMENTS.encode())},
        headers={"HX-Request": "true"},
    )
    assert response["HX-Redirect"] == import_url()


def test_another_team_cannot_reach_a_staged_file(browser_client: Client, stranger: Client) -> None:
    stage(browser_client, factories.DOCUMENTS)
    assert stranger.get(import_url()).status_code == 404
    assert stranger.post(import_url(), {"do": "import"}).status_code == 404
    upload = Upload.objects.get()
    assert stranger.post(reverse("web:upload_discard", args=["document-sets", upload.pk])).status_code == 404
    assert browser_client.get(reverse("web:upload_import", args=["query-sets", upload.pk])).status_code == 404


def test_a_set_is_deleted_only_while_no_job_uses_it(browser_client: Client, world: World) -> None:
    documents, judgements = world.documents.pk, world.judgements.pk
    used = browser_client.post(reverse("web:set_delete", args=["document-sets", documents]), follow=True)
    assert (
        "cannot be deleted: 1 job could not be read without it." in text_of(used)
        and DocumentSet.objects.filter(pk=documents).exists()
    )
    asked = browser_client.post(reverse("web:set_delete", args=["query-sets", world.queries.pk]), follow=True)
    assert "cannot be deleted: 1 job could not be read without it." in text_of(asked)
    free = browser_client.post(reverse("web:set_delete", args=["judgement-sets", judgements]), follow=True)
    assert "is deleted" in text_of(free) and not JudgementSet.objects.filter(pk=judgements).exists()


def test_texts_are_deleted_and_the_pages_say_so(browser_client: Client, world: World) -> None:
    page = reverse("web:set_detail", args=["document-sets", world.documents.pk])
    assert "Delete the texts, keep the results" in text_of(browser_client.get(page))
    asked = browser_client.post(reverse("web:texts_delete", args=["document-sets", world.documents.pk]), follow=True)
    assert "The texts of this set are being deleted" in text_of(asked) and "New job" not in text_of(asked)
    assert retention_apply() == 3
    after = text_of(browser_client.get(page))
    assert "The texts of this set were deleted" in after and "tweezers" not in after and "(no text)" in after
    job = text_of(browser_client.get(reverse("web:job_detail", args=[world.job.pk])))
    assert "Texts that this job scored were deleted" in job and "<code>d1</code>" in job
    form = text_of(browser_client.get(reverse("web:job_new")))
    assert str(world.documents.pk) not in form and str(world.queries.pk) in form


def test_judgements_have_no_texts_to_delete(browser_client: Client, world: World, stranger: Client) -> None:
    judgements = reverse("web:texts_delete", args=["judgement-sets", world.judgements.pk])
    assert browser_client.post(judgements).status_code == 404
    documents = reverse("web:texts_delete", args=["document-sets", world.documents.pk])
    assert stranger.post(documents).status_code == 404 and retention_apply() == 0


def test_rows_are_found_by_text_and_id(browser_client: Client, world: World) -> None:
    url = reverse("web:set_detail", args=["document-sets", world.documents.pk])
    page = text_of(browser_client.get(url, {"search": "TWEEZERS"}))
    assert "Ticks" in page and "Descale the kettle" not in page
    assert "Kettle" in text_of(browser_client.get(url, {"search": "d2"}))
    assert "Nothing here contains “zebra”" in text_of(browser_client.get(url, {"search": "zebra"}))


def test_rows_have_the_words_searched_for_wherever_they_stand(browser_client: Client, world: World) -> None:
    url = reverse("web:set_detail", args=["document-sets", world.documents.pk])
    assert "Pull the tick" in text_of(browser_client.get(url, {"search": "tweez ticks"}))  # text and title
    for search in ("tick kettle", "'; !", "ick", "d1 &"):
        assert "Nothing here contains" in text_of(browser_client.get(url, {"search": search})), search


def test_bad_rows_are_taken_away_with_their_reasons(browser_client: Client) -> None:
    stage(browser_client, BAD_ROWS + "=d,fourth\nb")
    mapping = {"id": "key", "text": "words", "title": "", "do": "bad-rows"}
    response: Any = browser_client.post(import_url(), mapping)
    lines = b"".join(response.streaming_content).decode("utf-8-sig").splitlines()
    assert lines[0] == '"line","reason","key","words"'
    assert [line.partition(",")[0] for line in lines[1:]] == ["3", "4", "7"]
    assert "repeats 'a'" in lines[2] and Upload.objects.count() == 1


def test_a_mapping_is_remembered_for_the_same_columns(browser_client: Client, stranger: Client) -> None:
    stage(browser_client, "key,words\na,first text\n")
    browser_client.post(import_url(), {"id": "key", "text": "words", "title": "", "name": "One", "do": "import"})
    page = text_of(stage(browser_client, "words,key\nsecond text,b\n"))
    assert '<option value="words" selected>' in page and "As your team chose" in page and "Import 1 documents" in page
    Upload.objects.all().delete()
    assert "As your team chose" not in text_of(stage(stranger, "words,key\nsecond text,b\n"))


def test_queries_may_be_typed_in(browser_client: Client) -> None:
    url = reverse("web:upload", args=["query-sets"])
    page = text_of(browser_client.post(url, {"typed": 'Is it "cold", or wet?\n\nHow do I pull a tick?\n'}, follow=True))
    assert "Import 2 queries" in page and "Is it &quot;cold&quot;, or wet?" in page
    assert "No file was chosen" in text_of(browser_client.post(url, {"typed": " \n"}))


def test_sets_of_one_name_are_versions_and_lengths_are_shown(
    browser_client: Client, world: World, analyst: User
) -> None:
    factories.imported(analyst, "documents", "id,text\n1,two words\n", name="Advice", file_name="again.csv")
    page = text_of(browser_client.get(reverse("web:set_detail", args=["document-sets", world.documents.pk])))
    assert "Versions" in page and "1 documents</a>" in page and "this one" in page
    assert '<td>1–8</td><td class="num">2</td>' in page and "Longest text" in page


def test_the_sample_data_is_one_click_away(browser_client: Client) -> None:
    assert "Load the sample data" in text_of(browser_client.get(reverse("web:home")))
    page = text_of(browser_client.post(reverse("web:samples"), follow=True))
    assert "72 documents, 12 queries, 73 judgements" in page
    again = text_of(browser_client.post(reverse("web:samples"), follow=True))
    assert "72 documents" in again and DocumentSet.objects.count() == 1


def test_a_file_that_is_not_utf8_is_shown_and_its_problem_named(browser_client: Client) -> None:
    page = text_of(stage(browser_client, "id,text\n1,Café\n2,plain\n".encode("latin-1")))
    assert "Caf\ufffd" in page and "Keep the 1 good rows" in page
    assert "is not UTF-8 (byte 0xE9" in page and "save it as UTF-8" in page


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "2", "text": "b", "m": ' + "[" * 900 + "]" * 900 + "}",
        '{"id": "2", "text": "b", "m": ' + "9" * 400 + "}",
        '{"id": "2", "text": "b", "m": ' + "9" * 5000 + "}",
        '{"id": "2", "text": "b", "m": ' + "9" * 400 + ".5}",
        '{"id": "2", "text": "b", "\\ud800": "c"}',
        '{"id": "2", "text": "b", "m": {"\\ud800": "\\udfff"}}',
        '{"id": "2", "text": "\\ud800\\u0000"}',
    ],
    ids=["deep", "long number", "too long a number", "long float", "broken name", "broken inside", "broken text"],
)
def test_odd_json_is_a_row_or_a_problem_never_a_failure(browser_client: Client, line: str) -> None:
    page = stage(browser_client, f'{{"id": "1", "text": "a"}}\n{line}\n', name="odd.jsonl")
    assert page.status_code == 200 and "First rows" in text_of(page)
    mapping = {"id": "id", "text": "text", "title": ""}
    checked = browser_client.post(import_url(), {**mapping, "name": "x", "do": "check"})
    assert checked.status_code == 200
    imported = browser_client.post(import_url(), {**mapping, "name": "Odd", "do": "keep"}, follow=True)
    assert imported.status_code == 200 and DocumentSet.objects.get().counts["kept"] >= 1


def test_a_full_disk_is_told_beside_the_file(browser_client: Client) -> None:
    with no_file_grows_beyond(1 << 20):
        page = stage(browser_client, b"id,text\n1," + b"x" * (3 << 20))
    assert "disk is full" in text_of(page) and not Upload.objects.exists()


def test_judgements_with_conflicts_and_unknown_ids_are_resolved(browser_client: Client, world: World) -> None:
    content = b"q1 0 d1 2\nq1 0 d1 0\nq1 0 d2 1\nq1 0 d2 1\nq2 0 zz 0\n"
    answer = browser_client.post(
        reverse("web:upload", args=["judgement-sets"]), {"file": SimpleUploadedFile("new.txt", content)}
    )
    path = answer["Location"]
    assert "the pair has the grades 2, 0" in text_of(browser_client.get(path))
    roles = {"query_id": "query_id", "document_id": "document_id", "grade": "grade", "name": "New"}
    sets = {"query_set": world.queries.pk, "document_set": world.documents.pk, "base": world.judgements.pk}
    fields = {**roles, **sets, "conflicts": "last"}
    checked = text_of(browser_client.post(path, {**fields, "do": "check"}))
    assert "1 pair has several grades: keep the last row. Their grades are apart by 2 in 1 pair." in checked
    assert "2 of 3 rows name what the chosen sets have" in checked and "<code>zz</code>" in checked
    unknown = browser_client.post(path, {**fields, "do": "unmatched"})
    assert b"'Advice' has no document 'zz'" in b"".join(unknown)
    browser_client.post(path, {**fields, "do": "import"})
    made = JudgementSet.objects.get(name="New")
    assert (made.version, made.root, made.counts["kept"]) == (2, world.judgements.root, 3)
    page = text_of(browser_client.get(reverse("web:set_detail", args=["judgement-sets", made.pk])))
    assert "version 2" in page and "2 of 3" in page and "q1, d1: 2, 0" in page
