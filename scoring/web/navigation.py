"""The main navigation: where each person may go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import reverse

from accounts.scopes import Scope
from assay.api.principal import Principal


@dataclass(frozen=True, slots=True)
class Entry:
    """``scope`` None: for everybody. ``section`` is what views say they belong to."""

    section: str
    title: str
    icon: str
    route: str
    key: str = ""
    scope: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    title: str
    icon: str
    url: str
    key: str
    current: bool


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    links: list[Link]


ENTRIES: Final = {
    "Work": (
        Entry("home", "Home", "home", "web:home", "g h"),
        Entry("jobs", "Jobs", "jobs", "web:job_list", "g j", Scope.JOBS),
        Entry("evaluations", "Evaluations", "evaluations", "web:evaluation_list", "g e", Scope.JOBS),
        Entry("comparisons", "Comparisons", "compare", "web:comparison_list", "g c", Scope.JOBS),
        Entry("pools", "Judging", "check", "web:pool_list", "g p", Scope.JOBS),
        Entry("try", "Try it", "try", "web:try", "g t", Scope.SCORE),
        Entry("requests", "Score requests", "requests", "web:score_request_list", "", Scope.SCORE),
    ),
    "Data": (
        Entry("document-sets", "Document sets", "documents", "web:set_list", "g d", Scope.JOBS, "document-sets"),
        Entry("query-sets", "Query sets", "queries", "web:set_list", "g q", Scope.JOBS, "query-sets"),
        Entry("judgement-sets", "Judgement sets", "judgements", "web:set_list", "g r", Scope.JOBS, "judgement-sets"),
        Entry("run-sets", "Run sets", "runs", "web:set_list", "", Scope.JOBS, "run-sets"),
    ),
    "Platform": (
        Entry("models", "Models", "models", "web:model_list", "g m", Scope.MODELS_READ),
        Entry("workers", "Workers", "workers", "web:worker_list", "g w", Scope.MODELS_READ),
        Entry("queue", "Queue", "queue", "web:queue", "", Scope.ADMIN),
        Entry("usage", "Usage", "usage", "web:usage", "", Scope.SCORE),
    ),
    "Team": (
        Entry("tokens", "API tokens", "token", "web:token_list", "", Scope.ADMIN),
        Entry("webhooks", "Webhooks", "webhook", "web:webhook_list", "", Scope.JOBS),
        Entry("people", "People", "people", "web:people", "", Scope.ADMIN),
        Entry("audit", "Audit log", "log", "web:audit_log", "", Scope.ADMIN),
        Entry("settings", "Settings", "settings", "web:settings", "", Scope.ADMIN),
    ),
}


def navigation_for(request: HttpRequest | None, principal: Principal | None) -> list[Group]:
    section = _section(request)
    groups = [
        Group(title, [_link(entry, section) for entry in entries if _visible(entry, principal)])
        for title, entries in ENTRIES.items()
    ]
    user = getattr(request, "user", None)
    if user is not None and user.is_staff:
        groups[-1].links.append(Link("Administration", "admin", reverse("admin:index"), "", False))
    return [group for group in groups if group.links]


def _visible(entry: Entry, principal: Principal | None) -> bool:
    return principal is not None and (entry.scope is None or principal.may(entry.scope))


def _link(entry: Entry, section: str) -> Link:
    arguments = {"kind": entry.kind} if entry.kind else {}
    return Link(entry.title, entry.icon, reverse(entry.route, kwargs=arguments), entry.key, entry.section == section)


def _section(request: HttpRequest | None) -> str:
    """The part of the site an address belongs to: its first word."""
    match = getattr(request, "resolver_match", None)
    if request is None or match is None:
        return ""
    first = request.path.strip("/").split("/")[0]
    return {"": "home", "score-requests": "requests"}.get(first, first)
