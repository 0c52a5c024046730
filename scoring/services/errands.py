"""What a person asks of some worker once: to look into a checkpoint, or to measure a model. A row asks, and answers."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Errand, ErrandKind, ScoringModel, Worker
from scoring.selectors.placements import placements_ready
from scoring.selectors.workers import workers_alive
from scoring.services.chunks import liveness, worker_label
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import ErrandState, ModelState, PlacementState, WorkerState

HUB: Final = "hub:"
HUB_SOURCE: Final = re.compile(
    r"hub:[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}@[A-Za-z0-9][\w./-]{0,127}", re.ASCII
)
PATIENCE: Final = timedelta(seconds=120)  # then nobody will come
MOST_OPEN: Final = 20  # of a team
MOST_DOCUMENTS: Final = 512
MOST_WORDS: Final = 512
MOST_ROUNDS: Final = 50


def inspection_ask(*, principal: Principal, source: str, gguf_file: str = "") -> Errand:
    """Ask a worker what the checkpoint at ``source`` is: a folder, ``package:…``, or ``hub:<owner>/<name>@<revision>``,
    which it downloads first.

    Raises AssayError 422 ``invalid_source``, 429 ``too_many_errands``.
    """
    source = source.strip()
    if not source or len(source) > 500:
        raise _refused("invalid_source", "'source' is empty or longer than 500 characters; give the model's folder.")
    if source.startswith(HUB):
        if not HUB_SOURCE.fullmatch(source) or ".." in source:
            message = f"'source' is '{source[:80]}'; give hub:<owner>/<name>@<revision>, such as a commit or a tag."
            raise _refused("invalid_source", message)
        if not settings.MODEL_HUB_URL or not settings.MODEL_ROOTS:
            missing = "MODEL_ROOTS, below which it is kept," if settings.MODEL_HUB_URL else "MODEL_HUB_URL"
            raise _refused(
                "invalid_source",
                f"A model is downloaded only where the operator allows it, and {missing} is not set here. Have it set, "
                "or give the path of a folder below MODEL_ROOTS, or package:<distribution>/<folder in it>.",
            )
    errand = Errand(kind=ErrandKind.INSPECTION, given={"source": source, "gguf_file": gguf_file.strip()})
    return _asked(errand, principal, verb="model.inspection_requested", detail={"source": source})


def benchmark_ask(*, principal: Principal, model: ScoringModel, documents: int, words: int, rounds: int) -> Errand:
    """Ask a worker that holds ``model`` how fast it scores ``documents`` of ``words`` words for a query, each of
    ``rounds`` times; other work goes first. The answer is kept with these settings.

    Raises AssayError 422 ``invalid_benchmark``, 409 ``model_not_served``, 429 ``too_many_errands``.
    """
    limits = {"documents": MOST_DOCUMENTS, "words": MOST_WORDS, "rounds": MOST_ROUNDS}
    given = {"documents": documents, "words": words, "rounds": rounds}
    for name, most in limits.items():
        if not 1 <= given[name] <= most:
            raise _refused("invalid_benchmark", f"'{name}' is {given[name]:,}; give 1 to {most:,}.", param=name)
    if model.state != ModelState.AVAILABLE:
        message = f"Model '{model.name}' is not served ({model.get_state_display()}); it must pass its self-test first."
        raise AssayError("model_not_served", message, status=409)
    errand = Errand(kind=ErrandKind.BENCHMARK, model=model, given=given)
    return _asked(errand, principal, verb="model.benchmark_requested", detail=given)


def _asked(errand: Errand, principal: Principal, *, verb: str, detail: dict[str, Any]) -> Errand:
    errand.team, errand.created_by = principal.team, principal.user
    open_ones = Errand.objects.for_team(principal.team).filter(state__in=(ErrandState.WAITING, ErrandState.RUNNING))
    if open_ones.count() >= MOST_OPEN:
        message = f"{MOST_OPEN} errands of your team wait or run already; wait until some have ended."
        raise AssayError("too_many_errands", message, status=429, retry_after=30)
    with transaction.atomic():
        errand.save(force_insert=True)
        transition_record(errand, "", ErrandState.WAITING, actor=principal.label, reason="asked").save()
        audit_record(verb=verb, principal=principal, target=errand.model or errand, detail=detail)
        transaction.on_commit(dispatch.workers_wake)
    return errand


# The worker's side


def errand_claim(*, worker: Worker) -> Errand | None:
    """The oldest that ``worker`` can do: any inspection, and benchmarks of models that are ready there."""
    here = Q(model__placements__worker=worker, model__placements__state=PlacementState.READY)
    able = Q(kind=ErrandKind.INSPECTION) | here
    waiting = Errand.objects.filter(able, state=ErrandState.WAITING).select_related("model").order_by("created_at")
    errand = waiting.first()
    if errand is None:
        return None
    taken = transition(
        errand, ErrandState.RUNNING, actor=worker_label(worker), reason="claimed", worker=worker, boot_id=worker.boot_id
    )
    return errand if taken else None


def errand_progress(*, errand: Errand, done: int, total: int) -> None:
    Errand.objects.filter(pk=errand.pk, state=ErrandState.RUNNING).update(progress={"done": done, "total": total})


def errand_finish(*, errand: Errand, worker: Worker, found: dict[str, Any]) -> bool:
    actor = worker_label(worker)
    return transition(errand, ErrandState.DONE, actor=actor, reason="done", found=found, finished_at=Now())


def errand_fail(*, errand: Errand, worker: Worker, error: str) -> bool:
    actor = worker_label(worker)
    return transition(errand, ErrandState.FAILED, actor=actor, reason="failed", error=error, finished_at=Now())


def errands_reclaim() -> int:
    """The reconciler's part: what nobody can take, or whose worker's process ended, fails with a sentence."""
    unclaimed = Q(state=ErrandState.WAITING, created_at__lt=Now() - PATIENCE)
    other_process = ~Q(worker__boot_id=F("boot_id"))
    silent = Q(worker__heartbeat_at__lt=Now() - liveness()) | Q(worker__state=WorkerState.GONE)
    orphaned = Q(state=ErrandState.RUNNING) & (Q(worker=None) | other_process | silent)
    ended = 0
    for errand in Errand.objects.filter(unclaimed | orphaned).select_related("worker", "model"):
        if errand.state == ErrandState.WAITING and _can_be_taken(errand):
            continue
        ended += transition(
            errand, ErrandState.FAILED, actor=RECONCILER, reason="given up", error=_why(errand), finished_at=Now()
        )
    return ended


def _can_be_taken(errand: Errand) -> bool:
    return bool(placements_ready(errand.model)) if errand.model else workers_alive().exists()


def _why(errand: Errand) -> str:
    if errand.state == ErrandState.RUNNING:
        return f"The worker {errand.worker or ''} ended meanwhile. Ask again.".replace("  ", " ")
    if errand.model is not None:
        return f"No worker holds '{errand.model.name}' ready. Load it, then ask again."
    return "No worker took it. Start a worker, then ask again."


def _refused(code: str, message: str, *, param: str = "source") -> AssayError:
    return AssayError(code, message, status=422, param=param)
