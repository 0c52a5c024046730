"""Every command once, against the running platform."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from assay.client import Client
from tests.client.conftest import Assay
from tests.integration.running import registered, submitted
from tests.stack import Stack

pytestmark = pytest.mark.stack

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DOCUMENTS, QUERIES = EXAMPLES / "documents.csv", EXAMPLES / "queries.tsv"


@pytest.fixture
def job(assay: Assay, model: str, server: Stack) -> dict[str, Any]:
    """A job that has ended, run as the README does."""
    ended = assay("jobs", "run", DOCUMENTS, QUERIES, "--mapping", "text=body", "-m", model, "-k", 5, "--wait", "--json")
    assert ended.code == 0, ended.err
    return ended.json


def test_rerank(assay: Assay, model: str, home: Path) -> None:
    file = home / "documents.txt"
    file.write_text("Pinch the nose.\nDescale the kettle.\n")
    ended = assay("rerank", "how do I stop a nosebleed?", file, "-d", "Rain falls.", "-m", model, "--json")
    results = ended.json["results"]
    assert [results[0]["document"]["text"], len(results)] == ["Pinch the nose.", 3]
    table = assay("rerank", "nosebleed?", file, "-m", model, "--top-n", 1).out.splitlines()
    assert table[0] == "score\tdocument\ttext" and table[1].endswith("\t1\tPinch the nose.") and len(table) == 2
    lines = b'{"id": "a", "title": "Kettles", "body": "Descale."}\n{"id": "b", "title": "Noses", "body": "Pinch."}\n'
    fields = ("--format", "jsonl", "--field", "title", "--field", "body", "-m", model)
    assert assay("rerank", "nosebleed?", "-", *fields, stdin=lines).out.splitlines()[1].endswith("\tb\tNoses Pinch.")


def test_compare(assay: Assay, job: dict[str, Any], home: Path) -> None:
    judgements = assay("upload", "judgements", EXAMPLES / "judgements.txt", "--json").json["id"]
    # A ranking compared with itself of another job, which is the same one.
    other = assay(
        "jobs", "run", job["document_set"]["id"], job["query_set"]["id"], "-m", job["model"], "-k", 3, "-w", "--json"
    )
    rankings, table = (job["id"], f"{other.json['id']}:0"), home / "table.tex"
    made = assay("compare", *rankings, "--judgements", judgements, "--measure", "Success@1", "-o", table, "--json")
    assert made.code == 0, made.err
    primary = made.json["measures"][1][0]
    assert (primary["measure"], primary["primary"], primary["outcome"]) == ("Success@1", True, "identical")
    assert made.json["id"] in table.read_text() and "\\begin{tabular}" in table.read_text()
    shown = assay("compare", *rankings)
    assert shown.out.splitlines()[0].startswith("with A\tqueries") and "Cut to 3" in shown.err
    assert assay("compare", job["id"], f"{job['id']}:x").code == 2
    assert assay("compare", *rankings, "-o", home / "table.doc").code == 2


def test_a_text_cannot_steer_the_terminal(assay: Assay, model: str) -> None:
    out = assay("rerank", "bees", "-d", "bees\x1b[2J\nhoney", "-m", model).out
    assert "\x1b" not in out and out.splitlines()[1].endswith("\tbees [2J honey")


def test_score(assay: Assay, model: str) -> None:
    texts = ("-q", "bees", "-q", "bridges", "-d", "Bees make honey.", "-d", "The bridge is closed.", "-m", model)
    pairs = assay("score", *texts, "--json").json["data"]
    assert [item["index"] for item in pairs] == [0, 1]
    rows = [line.split("\t") for line in assay("score", *texts, "--matrix").out.splitlines()[1:]]
    assert [(row[1], row[2]) for row in rows] == [("bees", "1"), ("bees", "2"), ("bridges", "1"), ("bridges", "2")]
    assert float(rows[0][0]) > float(rows[1][0])


def test_embed(assay: Assay, server: Stack) -> None:
    dense = registered(server.client, "client-dense", kind="bi-encoder")
    options = ("-d", "Bees make honey.", "-d", "Rain falls.", "-m", dense, "--input-type", "document")
    vectors = [json.loads(line) for line in assay("embed", *options).out.splitlines()]
    assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 100
    assert [item["index"] for item in assay("embed", *options, "--json").json["data"]] == [0, 1]


def test_sets(assay: Assay, server: Stack) -> None:
    uploaded = assay("upload", "judgements", "-", "--name", "by pipe", "--json", stdin=b"q1 0 d1 1\n").json
    assert (uploaded["name"], uploaded["counts"]["kept"]) == ("by pipe", 1)
    assert uploaded["id"] in assay("sets", "list", "judgements").out
    assert assay("sets", "delete", "judgements", uploaded["id"]).code == 0
    listed = assay("sets", "list", "judgements", "--limit", 0, "--json").json
    assert uploaded["id"] not in [each["id"] for each in listed]


def test_jobs(assay: Assay, job: dict[str, Any], home: Path) -> None:
    assert (job["state"], job["progress"]["percent"]) == ("completed", 100)
    assert job["id"] in [each["id"] for each in assay("jobs", "list", "--state", "completed", "--json").json]
    assert "completed" in assay("jobs", "show", job["id"]).out
    assert assay("jobs", "wait", job["id"]).code == 0
    results = assay("jobs", "results", job["id"], "--top-n", 3, "--texts", "--json").json
    assert len(results) == job["query_count"] and {len(result["documents"]) for result in results} == {3}
    (first,) = assay("jobs", "results", job["id"], "-n", 1, "--query-id", "q03").out.splitlines()[1:]
    assert first.split("\t")[:2] == ["q03", "1"]
    run = assay("jobs", "export", job["id"], "--format", "trec").out
    assert len(run.splitlines()) == 5 * job["query_count"] and run.split()[1] == "Q0"
    file = home / "rankings.csv"
    assert assay("jobs", "export", job["id"], "-o", file, "--json").json["bytes"] == file.stat().st_size > 0
    assert list(home.glob("*.part")) == []
    assert "completed" in assay("jobs", "events", job["id"], "--limit", 0).out


def test_explain(assay: Assay, model: str, job: dict[str, Any]) -> None:
    told = assay("explain", "how do I stop a nosebleed?", "Pinch the nose.", "-m", model).out
    assert f"model   {model}" in told and "gives\tquery\tdocument" in told
    first = assay("jobs", "results", job["id"], "--top-n", 1, "--limit", 1, "--json").json[0]
    place = (first["query_id"], first["documents"][0]["document_id"])
    found = assay("explain", *place, "--job", job["id"], "--json").json
    assert found["stored"]["agrees"] is True and found["matches"]
    assert "give --stage instead" in assay("explain", *place, "--job", job["id"], "-m", model).err


def test_export(assay: Assay, job: dict[str, Any], home: Path) -> None:
    file = home / "documents.jsonl"
    made = assay("export", "documents", "--set", f"set={job['document_set']['id']}", "-o", file, "--json").json
    assert made["format"] == "jsonl" and made["rows"] == len(file.read_text().splitlines()) > 10
    refused = assay("export", "nothing")
    assert refused.code == 3 and "documents" in refused.err  # names the tables


def test_evaluate(assay: Assay, job: dict[str, Any], server: Stack) -> None:
    judged = assay("upload", "judgements", "-", "--name", "of q03", "--json", stdin=b"q03 0 d01 1\nq03 0 d02 0\n").json
    evaluation = assay("evaluate", job["id"], "--judgements", judged["id"], "--json").json
    assert [one["measure"] for one in evaluation["measures"]] == ["nDCG@10", "RR@10", "R@100", "Judged@10"]
    assert (evaluation["n"], evaluation["unjudged"]) == (1, job["query_count"] - 1)
    shown = assay("evaluate", job["id"], "--judgements", judged["id"], "--measure", "P(rel=2)@5")
    assert shown.out.splitlines()[1].split("\t")[:2] == ["P(rel=2)@5", "0.0000"] and "n = 1 of" in shown.err


PERSON = """
from django.contrib.auth.models import User
from accounts.models import Role
from accounts.scopes import ALL_SCOPES
from accounts.services import team_default, token_create
user, _ = User.objects.get_or_create(username="client-judge")
team_default().memberships.get_or_create(user=user, defaults={"role": Role.ADMIN})
print(token_create(team=team_default(), name="a judge's", scopes=ALL_SCOPES, created_by=user)[1])
"""


def test_pools(assay: Assay, job: dict[str, Any], server: Stack, home: Path) -> None:
    """From rankings to the next version of the judgements: the commands, and judging by the client in between."""
    base = assay("upload", "judgements", "-", "--name", "begun", "--json", stdin=b"q03 0 d01 1\n").json["id"]
    options = ("-k", 3, "--base", base, "--name", "Three", "--set", 'query_ids=["q03", "q07"]', "--json")
    pool = assay("pools", "create", f"{job['id']}:0", *options).json
    assert (pool["name"], pool["state"]) == ("Three", "open") and pool["pair_count"] > 0
    refused = assay("pools", "publish", pool["id"])
    assert refused.code == 3 and "nothing_to_publish" in refused.err
    secret = server.manage("shell", "--verbosity", "0", "-c", PERSON).split()[-1]
    with Client(server.base_url, secret) as person:
        for one in person.pools.claims(pool["id"], pool["pair_count"])["pairs"]:
            person.pools.verdict(pool["id"], one["pair"], 1)
        last = person.pools.undo(pool["id"])
        assert person.pools.later(pool["id"], last["pair"]) == {"pair": last["pair"]}
        assert person.pools.adjudicate(pool["id"], last["pair"], 2) is not None
        assert person.pools.conflicts(pool["id"])["count"] == 0 and person.pools.model_judges(pool["id"]) == []
    assert f" {pool['pair_count']} of {pool['pair_count']}\n" in assay("pools", "show", pool["id"]).out
    told = assay("agreement", pool["id"])
    assert told.out.splitlines()[1] == "all people\talpha\t-\t0\t-" and told.err
    file = home / "verdicts.csv"
    assert assay("pools", "export-verdicts", pool["id"], "-o", file, "--json").json["rows"] == pool["pair_count"]
    assert '"client-judge","adjudicated",2,' in file.read_text()
    published = assay("pools", "publish", pool["id"], "--source", "blind", "--json").json
    assert published["provenance"]["grades"] == pool["pair_count"] and published["id"] != base
    assert assay("pools", "close", pool["id"], "--json").json["state"] == "closed"
    assert pool["id"] in [one["id"] for one in assay("pools", "list", "--state", "closed", "--json").json]
    assert pool["id"] not in assay("pools", "list", "--state", "open", "--limit", 0).out
    assert assay("pools", "open", pool["id"], "--json").json["state"] == "open"
    assert assay("pools", "delete", pool["id"]).code == 0 and assay("pools", "show", pool["id"]).code == 3


def test_cutoff(assay: Assay, job: dict[str, Any]) -> None:
    judged = ("--judgements", assay("upload", "judgements", EXAMPLES / "judgements.txt", "--json").json["id"])
    found = assay("cutoff", "measure", job["id"], *judged, "--json").json
    assert 0 < found["relevant"] <= found["pairs"] and len(found["cut_offs"]) > 1
    score = found["best"]["score"]
    shown = assay("cutoff", "measure", job["id"], *judged, "--score", score)
    assert len(shown.out.splitlines()) == 2 and found["remarks"][0] in shown.err
    made = assay("cutoff", "advise", job["id"], *judged, "--score", score, "--note", "For tests.", "--json").json
    assert (made["score"], made["evidence"]["f1"]) == (score, found["best"]["f1"])
    (row,) = [line for line in assay("cutoff", "list", "-m", job["model"]).out.splitlines() if made["id"] in line]
    assert row.endswith("\tFor tests.")
    assert assay("cutoff", "withdraw", made["id"]).code == 0
    assert made["id"] not in assay("cutoff", "list", "-m", job["model"]).out


def test_steering(assay: Assay, model: str, server: Stack) -> None:
    job = submitted(server.client, model, chunks=40, distinct=True)["id"]
    assert assay("jobs", "pause", job, "--json").json["state"] == "paused"
    assert assay("jobs", "resume", job, "--json").json["state"] in ("queued", "running")
    assert assay("jobs", "cancel", job, "--json").json["state"] in ("cancelling", "cancelled")
    assert assay("jobs", "wait", job).code == 1
    assert assay("jobs", "retry", job, "--json").json["attempt"] == 2
    assert assay("jobs", "cancel", job).code == 0


def test_models(assay: Assay, model: str, home: Path) -> None:
    assert model in [each["name"] for each in assay("models", "list", "--json").json]
    shown = assay("models", "show", model).out
    assert "late-interaction" in shown and "self-test" in shown
    rejected = assay("models", "register", "client-lost", "/nowhere", "--kind", "sparse", "--json")
    assert (rejected.code, rejected.json["state"]) == (1, "rejected")
    assert "'client-lost' is rejected and not served." in rejected.err and "/nowhere" in rejected.err
    later = assay("models", "register", "client-later", "/nowhere", "--kind", "sparse", "--no-wait", "--json")
    assert later.code == 0 and later.json["state"] in ("registered", "testing", "rejected")
    assert assay("models", "register", "client-lost", "/nowhere", "--kind", "sparse").code == 3


def test_workers(assay: Assay, server: Stack) -> None:
    assert [worker["state"] for worker in assay("workers", "--json").json if worker["state"] == "ready"]
    assert "worker-1" in assay("workers").out


def test_bench(assay: Assay, model: str) -> None:
    figures = assay("bench", "-n", 8, "-c", 3, "--documents", 2, "-m", model, "--json").json
    assert (figures["requests"], figures["errors"]) == (8, {})
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]


def test_login(assay: Assay, stack: Stack, home: Path) -> None:
    ended = assay("login", "--url", f"{stack.base_url}/", "--token-stdin", stdin=f"{stack.token}\n".encode())
    file = home / ".config" / "assay" / "config.toml"
    assert ended.code == 0 and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stack.token not in ended.out + ended.err
    assert assay("workers", "--json").code == 0
    file.chmod(0o644)
    assert "chmod 600" in assay("workers").err


def test_refusals(assay: Assay, server: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = assay("jobs", "show", "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10")
    assert missing.code == 3 and "not_found" in missing.err
    invalid = assay("rerank", "q", "-d", "d", "--top-n", 0, "--json")
    assert invalid.code == 3 and '"param": "top_n"' in invalid.err and invalid.out == ""
    assert assay("rerank", "q", "-d", "d", "--set", "top_n=1").code == 2
    assert assay("rerank", "q").code == 2
    assert assay("rerank", "q", "/no/such/file").code == 2
    monkeypatch.setenv("ASSAY_TOKEN", "assay_wrong")
    stranger = assay("workers")
    assert stranger.code == 3 and "assay_wrong" not in stranger.err
    monkeypatch.delenv("ASSAY_TOKEN")
    assert assay("workers").code == 2
