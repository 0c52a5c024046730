"""Another team's ids are not found, whatever the route, the method, or the field of a body that names them.

The routes are read off the URL configuration and the fields off the OpenAPI document: a new one that nothing here says
how to try makes these tests fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from rest_framework.test import APIClient

from accounts.models import ApiToken, Membership, Team
from accounts.scopes import ALL_SCOPES, Role
from accounts.services import principal_of_user, token_create
from audit.models import AuditEvent
from scoring.models import (
    BatchFile,
    Comparison,
    DocumentSet,
    Evaluation,
    Export,
    Job,
    JudgementSet,
    PlaygroundExample,
    Pool,
    PoolPair,
    QuerySet,
    RequestBatch,
    RunSet,
    ScoreRequest,
    SetEncoding,
    ThresholdAdvice,
    Upload,
    Verdict,
    Webhook,
    WebhookDelivery,
)
from scoring.services.batch_files import batch_file_store
from scoring.services.comparisons import comparison_create
from scoring.services.evaluations import evaluation_create
from scoring.services.explanations import Asked
from scoring.services.exports import export_ask, export_claim, export_make
from scoring.services.playground import example_save
from scoring.services.pools import pool_create
from scoring.services.request_batches import batch_create
from scoring.services.thresholds import advice_save, thresholds_measure
from scoring.services.webhook_deliveries import webhook_test
from scoring.services.webhooks import webhook_create
from scoring.states import ExportState
from scoring.web.set_kinds import SET_KINDS
from tests.api.schema import document
from tests.web import factories

pytestmark = pytest.mark.django_db

METHODS = ("get", "post", "put", "patch", "delete")
PLACE = re.compile(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)")
# What belongs to no team: models and workers are everybody's, a login ticket names its own user. The administration is
# for staff, who see all teams.
COMMON = (
    "api/v1/models/", "api/v1/model-aliases/", "v1/models/", "models/", "api/v1/workers/", "workers/",
    "accounts/once/", "admin/", "columns/", "components/", "export/",
)  # fmt: skip
# The beginning of an address, and what its id names.
OWNED = {
    "api/v1/jobs/": "job",
    "jobs/": "job",
    "api/v1/document-sets/": "document-sets",
    "api/v1/query-sets/": "query-sets",
    "api/v1/judgements/": "judgement-sets",
    "api/v1/runs/": "run-sets",
    "api/v1/score-requests/": "request",
    "score-requests/": "request",
    "api/v1/tokens/": "token",
    "tokens/": "token",
    "api/v1/teams/": "team",
    "api/v1/encodings/": "encoding",
    "encodings/": "encoding",
    "document-sets/": "document-sets",
    "api/v1/exports/": "export",
    "exports/": "export",
    "try/": "example",
    "api/v1/comparisons/": "comparison",
    "comparisons/": "comparison",
    "api/v1/threshold-advice/": "advice",
    "threshold-advice/": "advice",
    "api/v1/pools/": "pool",
    "pools/": "pool",
    "api/v1/evaluations/": "evaluation",
    "evaluations/": "evaluation",
    "api/v1/webhooks/": "webhook",
    "webhooks/": "webhook",
    "people/": "member",
    "api/v1/webhook-deliveries/": "delivery",
    "v1/files/": "file",
    "v1/batches/": "batch",
    "<set_kind:kind>/upload/": "upload",
    "<set_kind:kind>/": "set",
}
# Whoever asked for it alone has it: no other token of the team (tests/web/test_exports.py).
PRIVATE = ("api/v1/exports/",)
SHORT = ("team", "member")  # numbers that a page may hold for other reasons
QUERY = {
    "export": {"format": "csv"},
    "report": {"format": "wide"},
    "evaluation": {"judgement_set": "judgement-sets"},
    "thresholds": {"judgement_set": "judgement-sets"},
}
TABLES = (
    *(Job, DocumentSet, QuerySet, JudgementSet, RunSet, ScoreRequest, Upload, ApiToken),
    *(Team, Membership, Webhook, WebhookDelivery, BatchFile, RequestBatch),
    *(Export, PlaygroundExample, Comparison, SetEncoding, Pool, PoolPair, Verdict, Evaluation, ThresholdAdvice),
)


@dataclass(frozen=True, slots=True)
class Route:
    pattern: str
    methods: tuple[str, ...]
    is_api: bool


def routes(resolver: URLResolver | None = None, before: str = "") -> Iterator[Route]:
    """Every route of the URL configuration with its methods."""
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern).lstrip("^").rstrip("$")
        if isinstance(entry, URLResolver):
            if not pattern.startswith("admin/"):
                yield from routes(entry, pattern)
        elif isinstance(entry, URLPattern):
            view: Any = getattr(entry.callback, "cls", None) or getattr(entry.callback, "view_class", None)
            actions = getattr(entry.callback, "actions", None)
            known = [name for name in METHODS if (name in actions if actions else hasattr(view, name))]
            yield Route(pattern, tuple(known), hasattr(entry.callback, "cls"))


WITH_ID = [route for route in routes() if PLACE.search(route.pattern) and not route.pattern.startswith(COMMON)]
WITH_ID = [route for route in WITH_ID if PLACE.findall(route.pattern) != [("kind", "")]]  # lists and forms of a kind


@dataclass(frozen=True, slots=True)
class Owned:
    """One team's rows of every kind, by the words of ``OWNED``."""

    ids: dict[str, Any]
    user: User


@pytest.fixture
def owned(analyst: User, team: Team) -> Owned:
    documents, queries, judgements = factories.sample_sets(analyst)
    run = factories.imported(analyst, "runs", factories.RUN, name="Run", file_name="bm25.run")
    worker = factories.live_worker()
    model = factories.served_model(analyst, worker)
    job = factories.finished(analyst, model, worker, documents, queries)
    twice = [factories.finished(analyst, model, worker, documents, queries).last_stage, job.last_stage]
    comparison = comparison_create(principal=principal_of_user(analyst), stages=twice, judgement_set=judgements)
    measured = {"stage": job.last_stage, "judgement_set": judgements}
    evaluation, _ = evaluation_create(principal=principal_of_user(analyst), **measured)
    asked = Asked(principal=principal_of_user(analyst), endpoint="tests")
    report = thresholds_measure(asked=asked, stage=job.last_stage, judgement_set=judgements)
    advice = advice_save(principal=asked.principal, report=report, score=0.5)
    request = ScoreRequest.objects.create(team=team, endpoint="/score", model_name="late", status_code=200)
    content = ContentFile(factories.DOCUMENTS.encode(), name="advice.csv")
    upload = Upload.objects.create(team=team, kind="documents", file=content, file_name="advice.csv", size=9)
    token, _ = token_create(team=team, name="theirs", scopes=["score"])
    principal = principal_of_user(analyst)
    webhook, _ = webhook_create(principal=principal, url="https://hooks.example.org/", events=["job.completed"])
    delivery = webhook_test(webhook=webhook)
    file = batch_file_store(principal=principal, file=ContentFile(b"{}\n", name="requests.jsonl"))
    batch = batch_create(principal=principal, endpoint="/v1/rerank", input_file=file, metadata=None)
    export = export_ask(principal=principal, table="jobs", file_format="csv", parameters={})
    claimed = export_claim()
    assert claimed is not None and export_make(claimed) == ExportState.DONE
    example = example_save(principal=principal, title="Ticks", models=[model], query="q", documents=["d"], options={})
    encoding = SetEncoding.objects.create(team=team, document_set=documents, model=model)
    sets = {"document-sets": documents, "query-sets": queries, "judgement-sets": judgements, "run-sets": run}
    rows: dict[str, Model] = {
        **{
            "job": job,
            "request": request,
            "upload": upload,
            "webhook": webhook,
            "delivery": delivery,
            "export": export,
            "encoding": encoding,
        },
        **sets,
        "comparison": comparison,
        "advice": advice,
        "pool": pool_create(principal=principal_of_user(analyst), stages=[job.last_stage]),
        "evaluation": evaluation,
    }
    member = Membership.objects.get(user=analyst)
    Membership.objects.update(role=Role.ADMIN)  # so that its own pages are open to the team's one person
    public = {
        "member": member.pk,
        "team": team.pk,
        "token": token.public_id,
        "file": file.public_id,
        "batch": batch.public_id,
        "example": example.short_id,
    }
    return Owned({name: row.pk for name, row in rows.items()} | public, analyst)


@pytest.fixture
def stranger(db: None) -> User:
    """An administrator of another team."""
    user = User.objects.create_user("stranger", password="x")
    Membership.objects.create(user=user, team=Team.objects.create(name="others"), role=Role.ADMIN)
    return user


def clients(user: User) -> dict[bool, Client]:
    """By whether they are for the API: a token of the user's team that may do everything, and the user's browser."""
    _, secret = token_create(team=Membership.objects.get(user=user).team, name=f"of {user}", scopes=ALL_SCOPES)
    pages = Client()
    pages.force_login(user)
    return {True: APIClient(headers={"Authorization": f"Bearer {secret}"}), False: pages}


def filled(pattern: str, values: dict[str, str]) -> str:
    return PLACE.sub(lambda place: values[place[1] or place[2]], pattern)


def addresses(route: Route, owned: Owned) -> Iterator[str]:
    """The route with the team's ids in it: of every kind of set, where it has kinds."""
    what = next((word for start, word in OWNED.items() if route.pattern.startswith(start)), None)
    assert what is not None, f"Nothing in OWNED says whose id {route.pattern} takes."
    kinds = {"set": list(SET_KINDS), "upload": ["document-sets"]}
    for kind in kinds.get(what, [what]):
        values = {"pk": str(owned.ids[kind if what == "set" else what]), "kind": kind, "index": "0"}
        values["public_id"] = values["file_id"] = values["batch_id"] = values["pk"]
        values["short_id"] = values["pk"]
        values |= {"username": str(owned.user), "delivery": str(owned.ids["delivery"]), "position": "0"}
        path = "/" + filled(route.pattern, values)
        assert resolve(path).route.lstrip("^").rstrip("$") == route.pattern, path
        yield path


def last_word(path: str) -> str:
    """For what an address has to be asked for: exports of comparisons and evaluations have formats of their own."""
    words = path.strip("/").split("/")
    return "report" if words[-1] == "export" and {"comparisons", "evaluations"} & set(words) else words[-1]


def rows_now() -> list[Any]:
    """Everything that the teams have, and how much was ever done."""
    rows = [sorted(map(str, table._default_manager.values_list())) for table in TABLES]
    return [*rows, AuditEvent.objects.count()]


def test_every_route_finds_no_row_of_another_team(owned: Owned, stranger: User) -> None:
    foreign, own = clients(stranger), clients(owned.user)
    for client in (foreign[True], own[True]):
        assert client.get("/v1/models").status_code == 200  # the first use of a token is written down
    before = rows_now()
    tried = 0
    for route in WITH_ID:
        private = route.pattern.startswith(PRIVATE)
        for path in addresses(route, owned):
            query = {name: str(owned.ids.get(value, value)) for name, value in QUERY.get(last_word(path), {}).items()}
            for method in route.methods:
                answer = getattr(foreign[route.is_api], method)(path, query)
                assert answer.status_code == 404, (method, path, answer.status_code, answer.content[:300])
                tried += 1
            # So that the 404 was not the address's own fault. An explanation asks a worker and leaves a request.
            if "get" in route.methods and not private and "explanation" not in path:
                answer = own[route.is_api].get(path, query)
                assert answer.status_code < 300, (path, answer.status_code, answer.content[:300])
    assert tried >= 50
    after = rows_now()
    told = [f"{noun}.exported" for noun in ("job", "comparison", "evaluation")]
    exported = AuditEvent.objects.filter(verb__in=told).count()  # by its own team, above
    assert [*after[:-1], after[-1] - exported] == before


# Fields of bodies and of queries that name rows.
NAMED = {
    ("post", "/api/v1/jobs", "document_set"),
    ("post", "/api/v1/jobs", "query_set"),
    ("post", "/api/v1/jobs", "candidates.run_set"),
    ("post", "/api/v1/jobs", "stages.run_set"),
    ("get", "/api/v1/jobs/{id}/evaluation", "judgement_set"),
    ("post", "/api/v1/encodings", "document_set"),
    ("get", "/api/v1/encodings/estimate", "document_set"),
    ("get", "/api/v1/jobs/{id}/thresholds", "judgement_set"),
    ("post", "/api/v1/threshold-advice", "job"),
    ("post", "/api/v1/threshold-advice", "judgement_set"),
    ("post", "/api/v1/comparisons", "stages.job"),
    ("post", "/api/v1/comparisons", "judgement_set"),
    *(("post", "/api/v1/judgements", name) for name in ("query_set", "document_set", "base")),
    *(("post", "/api/v1/pools", name) for name in ("stages.job", "run_set", "query_set", "document_set", "base")),
    ("post", "/api/v1/evaluations", "job"),
    ("post", "/api/v1/evaluations", "judgement_set"),
    *(("get", "/api/v1/evaluations/leaderboard", name) for name in ("query_set", "judgement_set", "baseline")),
}
POOLED = ("run_set", "query_set", "document_set", "base")
# Filters: a foreign id is like any other that no row of the team has.
FILTERS = {
    *(("get", "/api/v1/jobs", name) for name in ("document_set", "query_set", "cloned_from")),
    ("get", "/api/v1/webhook-deliveries", "webhook"),
    ("get", "/api/v1/comparisons", "job"),
    ("get", "/api/v1/pools", "query_set"),
    ("get", "/api/v1/judgements", "root"),
    ("get", "/api/v1/encodings", "document_set"),
    *(("get", "/api/v1/evaluations", name) for name in ("job", "query_set", "judgement_set")),
}
ROWS = {"document_set": "document-sets", "query_set": "query-sets", "run_set": "run-sets", "root": "judgement-sets"}


def uuid_fields(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    """Dotted names of the members that are ids."""
    if reference := schema.get("$ref"):
        schema = document()["components"]["schemas"][reference.rpartition("/")[2]]
    if schema.get("format") == "uuid":
        yield before.rstrip(".")
    for name, member in schema.get("properties", {}).items():
        yield from uuid_fields(member, f"{before}{name}.")
    for part in [*schema.get("oneOf", []), *schema.get("anyOf", []), *schema.get("allOf", [])]:
        yield from uuid_fields(part, before)
    if "items" in schema:
        yield from uuid_fields(schema["items"], before)


def test_every_field_that_names_a_row_is_tried_here() -> None:
    found = set()
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                found |= {(method, path, field) for field in uuid_fields(media["schema"])}
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query" and list(uuid_fields(parameter["schema"])):
                    found.add((method, path, parameter["name"]))
    assert found == NAMED | FILTERS


def test_another_teams_id_in_a_field_is_not_found(owned: Owned, stranger: User) -> None:
    client = clients(stranger)[True]
    documents, queries, _ = factories.sample_sets(stranger)
    good = {"document_set": documents.pk, "query_set": queries.pk, "model": "late"}
    staged = {name: value for name, value in good.items() if name != "model"}
    run = {"run_set": owned.ids["run-sets"]}
    bodies: dict[str, dict[str, Any]] = {
        "document_set": {**good, "document_set": owned.ids["document-sets"]},
        "query_set": {**good, "query_set": owned.ids["query-sets"]},
        "candidates.run_set": {**good, "candidates": run},
        "stages.run_set": {**staged, "stages": [run, {"model": "late", "source": 0}]},
        "stages.job": {"stages": [{"job": owned.ids["job"]}] * 2},
    }
    job = client.post("/api/v1/jobs", good).json()["id"]
    bodies["judgement_set"] = {"judgement_set": owned.ids["judgement-sets"]}
    bodies["job"] = {"job": owned.ids["job"], **bodies["judgement_set"], "score": 0.5}
    theirs = {name: owned.ids[row] for name, row in (ROWS | {"base": "judgement-sets"}).items() if name in POOLED}
    grades = factories.imported(stranger, "judgements", "q1 0 d1 1\n", name="G", file_name="g.txt").pk
    board = {"query_set": queries.pk, "judgement_set": grades}
    special: dict[tuple[str, str], dict[str, Any]] = {
        ("/api/v1/comparisons", "judgement_set"): {"stages": [{"job": job}, {"job": job}], **bodies["judgement_set"]},
        ("/api/v1/threshold-advice", "judgement_set"): {**bodies["job"], "job": job},
        ("/api/v1/evaluations", "job"): {"job": owned.ids["job"], "judgement_set": grades},
        ("/api/v1/evaluations", "judgement_set"): {"job": job, **bodies["judgement_set"]},
        ("/api/v1/evaluations/leaderboard", "query_set"): {**board, "query_set": owned.ids["query-sets"]},
        ("/api/v1/evaluations/leaderboard", "judgement_set"): {**board, **bodies["judgement_set"]},
        ("/api/v1/evaluations/leaderboard", "baseline"): {**board, "baseline": owned.ids["evaluation"]},
        **{("/api/v1/pools", field): {"stages": [], field: theirs[field]} for field in theirs},
    }
    for method, path, field in NAMED:
        body = special.get((path, field)) or bodies.get(field, {})
        if path.startswith("/api/v1/encodings"):
            body = {"document_set": body["document_set"], "model": "late"}
        if path == "/api/v1/judgements":
            body = {"file": SimpleUploadedFile("q.txt", b"q1 0 d1 1\n"), field: theirs[field]}
        form = "multipart" if "file" in body else "json"
        answer = getattr(client, method)(
            path.replace("{id}", job), body, **({} if method == "get" else {"format": form})
        )
        assert answer.status_code == 404, (field, answer.content)
        error = answer.json()["error"]
        assert (error["code"], re.sub(r"\[\d+\]", "", error["param"])) == ("not_found", field)
    line = {"input_file_id": owned.ids["file"], "endpoint": "/v1/rerank", "completion_window": "24h"}
    assert client.post("/v1/batches", line).json()["error"]["param"] == "input_file_id"
    assert Job.objects.filter(team=Membership.objects.get(user=stranger).team).count() == 1


@pytest.mark.parametrize(("path", "name"), sorted((path, name) for _, path, name in FILTERS))
def test_a_filter_by_another_teams_id_finds_nothing(path: str, name: str, owned: Owned, stranger: User) -> None:
    value = owned.ids[ROWS.get(name, name if name in owned.ids else "job")]
    answer = clients(stranger)[True].get(path, {name: value})
    assert answer.status_code == 200 and answer.json()["results"] == []


def test_the_form_of_a_new_job_offers_and_takes_no_foreign_set(owned: Owned, stranger: User) -> None:
    pages = clients(stranger)[False]
    form = {"document_set": owned.ids["document-sets"], "query_set": owned.ids["query-sets"], "model": "late"}
    before = Job.objects.count()
    for answer in (pages.post("/jobs/new/", form), pages.get("/jobs/new/", form), pages.get("/jobs/new/size/", form)):
        assert answer.status_code == 200 and b"Advice" not in answer.content and b"Questions" not in answer.content
    assert Job.objects.count() == before


def test_lists_show_the_teams_own_rows_only(owned: Owned, stranger: User) -> None:
    foreign, ids = clients(stranger), [str(value) for name, value in owned.ids.items() if name not in SHORT]
    # The leaderboard and the estimate list nothing without ids in their query: those are tried above.
    shared = (
        *(*COMMON, "accounts/", "api/schema", "api/docs", "favicon"),
        *("api/v1/encodings/estimate", "api/v1/evaluations/leaderboard"),
    )
    tried = 0
    for route in routes():
        if route in WITH_ID or "get" not in route.methods or route.pattern.startswith(shared):
            continue
        for kind in SET_KINDS if PLACE.search(route.pattern) else [""]:
            path = "/" + PLACE.sub(kind, route.pattern)
            answer = foreign[route.is_api].get(path, follow=True)
            assert answer.status_code < 300, (path, answer.content[:300])
            assert not [name for name in ids if name in answer.content.decode()], path
            tried += 1
    assert tried >= 20
