"""What stages a job may have: asked for as plans, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.errors import AssayError
from scoring.models import Document, DocumentSet, Query, QuerySet, RunEntry, RunSet, ScoringModel, StageMethod
from scoring.selectors.candidates import run_longest_list
from scoring.selectors.run_match import run_matches
from scoring.states import ModelState, SetState

MAX_STAGES: Final = 8
MAX_KEPT: Final = 2**31 - 1
MAX_RETRIEVED: Final = 10_000
BM25: Final[dict[str, Any]] = {"variant": "lucene", "k1": 1.5, "b": 0.75, "stop_words": "english"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One stage as asked for. ``source``: index of the earlier stage that gives the candidates; None: all documents."""

    model: ScoringModel | None = None
    method: StageMethod = StageMethod.MODEL
    source: int | None = None
    top_k: int | None = None
    run_set: RunSet | None = None

    def __str__(self) -> str:
        return self.model.name if self.model else self.run_set.name if self.run_set else self.method.upper()


def plans_check(plans: Sequence[StagePlan], *, query_set: QuerySet, document_set: DocumentSet) -> None:
    """Raises AssayError 422 that names the stage, says what was given and what to give instead."""
    if not 1 <= len(plans) <= MAX_STAGES:
        message = f"{len(plans)} stages were asked for; a job has between 1 and {MAX_STAGES}."
        raise _refusal("bad_stages", message, "stages")
    for index, plan in enumerate(plans):
        where = f"stages[{index}]."
        _check_method(plan, where)
        _check_source(plans, index, where)
        _check_top_k(plans, index, where)
        if plan.run_set is not None:
            _check_run(plan.run_set, query_set, document_set, where)


def candidate_limits(plans: Sequence[StagePlan], *, document_count: int) -> list[int]:
    """For each stage the most candidates that one query can have: what its pairs are at most, per query."""
    limits: list[int] = []
    for plan in plans:
        limit = document_count if plan.source is None else limits[plan.source]
        if plan.source is not None and (kept := plans[plan.source].top_k):
            limit = min(limit, kept)
        if plan.run_set is not None:
            limit = min(limit, run_longest_list(plan.run_set))
        if plan.method != StageMethod.MODEL and plan.top_k:
            limit = min(limit, plan.top_k)
        limits.append(limit)
    return limits


def _check_method(plan: StagePlan, where: str) -> None:
    needed = {StageMethod.MODEL: "model", StageMethod.RUN: "run_set"}.get(plan.method)
    for field in ("model", "run_set"):
        given = getattr(plan, field) is not None
        if given and field != needed:
            message = f"A stage with the method '{plan.method}' takes no {field}. Leave it out."
            raise _refusal("bad_stage", message, where + field)
        if not given and field == needed:
            raise _refusal("bad_stage", f"A stage with the method '{plan.method}' needs a {field}.", where + field)
    if plan.model and plan.model.state != ModelState.AVAILABLE:
        raise _refusal(
            "model_not_served",
            f"Model '{plan.model.name}' is not served ({plan.model.get_state_display()}). "
            "Choose one that passed its self-test.",
            where + "model",
        )


def _check_source(plans: Sequence[StagePlan], index: int, where: str) -> None:
    plan = plans[index]
    if plan.source is None:
        return
    if plan.method != StageMethod.MODEL:
        message = f"A stage with the method '{plan.method}' finds its documents itself. Leave source out."
        raise _refusal("bad_source", message, where + "source")
    if not 0 <= plan.source < index:
        allowed = "leave it out" if index == 0 else f"give a number from 0 to {index - 1}, or leave it out"
        raise _refusal(
            "bad_source",
            f"The source of stage {index} is {plan.source}; it must be an earlier stage: {allowed} to score all "
            "documents.",
            where + "source",
        )


def _check_top_k(plans: Sequence[StagePlan], index: int, where: str) -> None:
    plan = plans[index]
    if plan.top_k is not None and plan.top_k < 1:
        message = f"top_k is {plan.top_k}; it must be at least 1, or absent for all documents."
        raise _refusal("bad_top_k", message, where + "top_k")
    if plan.method == StageMethod.BM25 and not (plan.top_k and plan.top_k <= MAX_RETRIEVED):
        given = "missing" if plan.top_k is None else f"{plan.top_k:,}"
        message = f"The top_k of a BM25 stage is {given}; give how many documents to retrieve, 1 to {MAX_RETRIEVED:,}."
        raise _refusal("bad_top_k", message, where + "top_k")
    before = plans[plan.source].top_k if plan.source is not None else None
    if before and plan.top_k and plan.top_k > before:
        raise _refusal(
            "bad_top_k",
            f"Stage {index} would keep {plan.top_k:,} documents of a query, but its source, stage {plan.source}, "
            f"passes on {before:,}. Give at most {before:,}, or leave top_k out to keep all of them.",
            where + "top_k",
        )


def _check_run(run_set: RunSet, query_set: QuerySet, document_set: DocumentSet, where: str) -> None:
    if run_set.state != SetState.READY:
        message = f"The run '{run_set.name}' is {run_set.state}; wait until it is ready."
        raise _refusal("set_not_ready", message, where + "run_set")
    if run_matches(run_set=run_set, query_set=query_set, document_set=document_set):
        return
    entry = RunEntry.objects.filter(run_set=run_set).order_by("position").first()
    query = Query.objects.filter(query_set=query_set).order_by("position").first()
    document = Document.objects.filter(document_set=document_set).order_by("position").first()
    named = f"It begins with query '{entry.query_id}' and document '{entry.document_id}'" if entry else "It is empty"
    raise _refusal(
        "run_does_not_match",
        f"No line of the run '{run_set.name}' names both a query of '{query_set.name}' and a document of "
        f"'{document_set.name}'. {named}, the sets with query '{query}' and document '{document}'. Runs and sets must "
        "use the same ids.",
        where + "run_set",
    )


def _refusal(code: str, message: str, param: str) -> AssayError:
    return AssayError(code, message, status=422, param=param)
