"""Every page that links lead to: usable by everybody, at both widths and in both themes, without a complaint."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
from django.urls import Resolver404, resolve
from playwright.sync_api import Page

from tests.e2e.accessibility import faults_of
from tests.e2e.conftest import MakeFile, Visit
from tests.integration.rig import wait_for
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

EVERYWHERE: Final = ("/", "/components/", "/try/?example", "/accounts/login/")
LINKS: Final = "links => links.map(link => link.getAttribute('href'))"


def test_every_page_is_usable_by_everybody(visit: Visit, stack: Stack, file_with: MakeFile) -> None:
    faults: dict[str, list[str]] = {}
    for path in pages(visit, [*worked(visit, stack, file_with), *EVERYWHERE]):
        if found := faults_of(visit.page) + visit.complaints:
            faults[path] = found
        visit.complaints.clear()
    assert not faults, "\n".join(f"{path}\n  " + "\n  ".join(found) for path, found in faults.items())


def pages(visit: Visit, first: list[str]) -> Iterator[str]:
    """Opens one page of each kind that can be reached; whose address is yielded is open."""
    waiting, seen = deque(first), set[str]()
    while waiting:
        path = waiting.popleft()
        kind = kind_of(path)
        if kind is None or kind in seen:
            continue
        seen.add(kind)
        visit.open(path)
        waiting.extend(links_of(visit.page))
        yield path


def kind_of(path: str) -> str | None:
    """The name of the page's route, None for what is not ours. The four kinds of sets are four kinds of pages."""
    try:
        match = resolve(urlsplit(path).path)
    except Resolver404:
        return None
    if match.namespace != "web" and match.view_name != "login":
        return None
    return " ".join([match.view_name, str(match.kwargs.get("kind", ""))]).strip()


def links_of(page: Page) -> list[str]:
    return [
        link for link in page.locator("a[href^='/']:not([download])").evaluate_all(LINKS) if not link.startswith("//")
    ]


def worked(visit: Visit, stack: Stack, file_with: MakeFile) -> list[str]:
    """Pages of what one finds after some work: sets of every kind, a job of two stages, an import half way, …"""
    salt = uuid.uuid4().hex[:8]
    files = {
        "document-sets": ("documents.csv", f"id,title,text\nd1,Ticks,Pull the tick out {salt}\nd2,Kettle,Use acid\n"),
        "query-sets": ("queries.tsv", f"id\ttext\nq1\thow to pull a tick {salt}\nq2\tdescale a kettle\n"),
        "judgement-sets": ("grades.txt", f"q1 0 d1 2\nq2 0 d2 1\nq2 0 {salt} 0\n"),
        "run-sets": ("bm25.run", f"q1 Q0 d1 1 12.5 {salt}\nq2 Q0 d2 1 3 {salt}\n"),
    }
    uploaded = {}
    for kind, (name, content) in files.items():
        visit.upload(kind, file_with(name, content), "Import")
        uploaded[kind] = urlsplit(visit.page.url).path
    visit.look_at("document-sets", file_with("bad.csv", f"key,words\nd1,Salt {salt}\nd2\n"))
    half_way = urlsplit(visit.page.url).path
    documents, queries, judgements = (uploaded[kind].split("/")[2] for kind in list(files)[:3])
    body = {"document_set": documents, "query_set": queries, "model": "minilm-late", "candidates": {"bm25": 2}}
    job = checked(stack.client.post("/api/v1/jobs", json=body))["id"]
    wait_for(lambda: checked(stack.client.get(f"/api/v1/jobs/{job}"))["state"] == "completed", seconds=180, every=0.25)
    checked(stack.client.post("/rerank", json={"model": "minilm-late", "query": "tick", "documents": ["pull", "boil"]}))
    made = {
        "evaluations": {"job": job, "judgement_set": judgements},
        "comparisons": {"stages": [{"job": job, "stage": 0}, {"job": job, "stage": 1}], "judgement_set": judgements},
        "pools": {"stages": [{"job": job}], "k": 2, "name": f"pool {salt}"},
    }
    ids = {kind: checked(stack.client.post(f"/api/v1/{kind}", json=asked))["id"] for kind, asked in made.items()}
    return [
        f"/jobs/{job}/", f"/jobs/{job}/evaluation/", half_way, *uploaded.values(), "/models/minilm-late/",
        *(f"/{kind}/{pk}/" for kind, pk in ids.items()),
    ]  # fmt: skip
