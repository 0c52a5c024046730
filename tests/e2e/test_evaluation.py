"""The whole task in a browser: judgements with conflicts, a ranking measured, compared with another, what nobody judged
judged by keyboard, all of it computed anew, and the table for a paper."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import MakeFile, Visit
from tests.e2e.test_job_pages import choose
from tests.integration.rig import wait_for
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

DOCUMENTS = """id,text
d0,"Grip the tick with tweezers and pull it straight out, {0}."
d1,Descale the kettle with citric acid.
d2,Wet boots dry overnight with paper in them.
d3,Salt the water before the pasta goes in.
"""
QUERIES = "id\ttext\nq1\tHow do I remove a tick?\nq2\tHow do I descale a kettle {0}?\n"
# What answers q1 stands last, behind a document that nobody has judged yet and that turns out to be better.
RUN = "q1 Q0 d2 1 9 x\nq1 Q0 d3 2 8 x\nq1 Q0 d1 3 7 x\nq1 Q0 d0 4 6 x\nq2 Q0 d1 1 9 x\n"
JUDGEMENTS = "q1 0 d0 2\nq1 0 d0 1\nq2 0 d1 2\nq2 0 gone-{0} 0\n"
GRADES = {"d1": "0", "d2": "3", "d3": "0"}


def test_from_judgements_with_conflicts_to_a_table_for_a_paper(visit: Visit, stack: Stack, file_with: MakeFile) -> None:
    page, salt = visit.page, uuid.uuid4().hex[:8]
    jobs = _two_jobs(stack, salt)
    judgements = _import_with_conflicts(visit, file_with(f"judged {salt}.qrels", JUDGEMENTS.format(salt)))

    visit.open(f"/jobs/{jobs[0]}/")
    page.get_by_role("link", name="Evaluation", exact=True).click()
    choose(page, "Judgement set", judgements)
    page.get_by_role("button", name="Measure").click()
    expect(page.get_by_text("n = 2 of 2")).to_be_visible()
    evaluation = page.url

    visit.open(f"/jobs/{jobs[0]}/")
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(1)
    page.get_by_role("checkbox", name=re.compile("^R&D_50%")).check()
    choose(page, "Judgement set (optional)", judgements)
    page.get_by_label("Name").fill("Ticks & kettles_#1")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Against the judgements")).to_be_visible()
    comparison = page.url
    page.get_by_role("link", name="regressed 1").click()
    page.locator("tbody tr").get_by_role("link").click()
    slide = page.get_by_role("dialog", name="One query side by side")
    slide.get_by_role("link", name="Judge the 3 unjudged of the first 10").click()
    expect(page.get_by_text("3 pairs", exact=False).first).to_be_visible()
    page.get_by_role("button", name="Make the pool").click()
    _judge_by_keyboard(page)
    page.get_by_role("button", name="Publish as version 2 (3 new grades)").click()
    expect(page.get_by_text("Version 2 is there, with 3 new grades.")).to_be_visible()

    page.goto(evaluation)
    page.get_by_role("button", name="Measure again with version 2").click()
    expect(page.get_by_text("n = 2 of 2")).to_be_visible()
    expect(page.get_by_text("stale", exact=True)).to_have_count(0)
    assert page.url != evaluation

    page.goto(comparison)
    expect(page.get_by_role("link", name="regressed 1")).to_be_visible()  # its numbers stay
    page.get_by_role("button", name="Recompute with version 2").click()
    expect(page.get_by_role("link", name="improved 1")).to_be_visible()
    expect(page.get_by_role("link", name="regressed 0")).to_be_visible()
    expect(page.get_by_role("button", name="Recompute")).to_have_count(0)
    assert page.url != comparison

    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="LaTeX").click()
    provenance, table = Path(download.value.path()).read_text(encoding="utf-8").split("\\begin{table}")
    assert download.value.suggested_filename.endswith(".tex")
    assert all(line.startswith("% ") for line in provenance.splitlines())
    assert re.search(rf"^% Judgements: {judgements} \(\S+\), version 2,", provenance, re.MULTILINE)
    assert "paired t-test" in provenance and "n = 2 of 2" in provenance
    assert table.count("\\toprule") == table.count("\\bottomrule") == 2
    assert re.search(r"^B R\\&D\\_50\\% & 0\.\d{4} &", table, re.MULTILINE)
    assert "\\caption{Ticks \\& kettles\\_\\#1." in table and table.rstrip().endswith("\\end{table}")
    assert visit.complaints == []


def _import_with_conflicts(visit: Visit, path: Path) -> str:
    """The name of the set, in which the lower grade of the two that q1 d0 has counts."""
    page = visit.page
    visit.look_at("judgement-sets", path)
    expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
    expect(page.get_by_role("button", name="Keep the 2 good rows")).to_be_visible()
    page.get_by_label("Pairs with several grades").select_option("judges")
    expect(page.get_by_text("1 pair has several grades")).to_be_visible()
    page.get_by_label("Name of the").fill(path.stem)
    page.get_by_role("button", name="Import 3 judgements").click()
    expect(page.get_by_role("heading", name=path.stem, level=1)).to_be_visible()
    return path.stem


def _judge_by_keyboard(page: Page) -> None:
    """Each of the three pairs, in whatever order they come; the pool's page is open before and after."""
    page.get_by_role("link", name="Judge", exact=True).click()
    page.wait_for_load_state()  # keys are shortcuts from then on
    for done in range(len(GRADES)):
        expect(page.get_by_text(f"{done} of 3, yours {done}")).to_be_visible()
        page.keyboard.press(GRADES[page.locator("article code").inner_text()])
    expect(page.get_by_role("heading", name="Nothing is left for you")).to_be_visible()
    page.keyboard.press("Enter")  # the way back has the focus


def _two_jobs(stack: Stack, salt: str) -> list[str]:
    """The ids of two ended jobs over the same sets: every document by a model, and what an uploaded run lists."""
    found = {}
    for kind, field, name, content in (
        ("document-sets", "document_set", "advice.csv", DOCUMENTS),
        ("query-sets", "query_set", "questions.tsv", QUERIES),
        ("runs", "run_set", "R&D_50%.run", RUN),
    ):
        answer = stack.client.post(
            f"/api/v1/{kind}",
            files={"file": (name, content.format(salt))},
            data={"name": name.partition(".")[0], "use_existing": "true"},
        )
        found[field] = checked(answer)["id"]
    body = {"document_set": found["document_set"], "query_set": found["query_set"], "model": "minilm"}
    asked = (body, {**body, "candidates": {"run_set": found["run_set"]}})
    ids = [str(checked(stack.client.post("/api/v1/jobs", json=each))["id"]) for each in asked]
    wait_for(lambda: all(_completed(stack, each) for each in ids), seconds=180, what="both jobs", every=0.25)
    return ids


def _completed(stack: Stack, job: str) -> bool:
    return bool(checked(stack.client.get(f"/api/v1/jobs/{job}"))["state"] == "completed")
