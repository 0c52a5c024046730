"""Document sets that are encoded ahead, so that a job or a request over them reads its queries only.

A row asks, a worker that holds the model does it and says how far it is; what it then keeps, the row says too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import DocumentSet, Placement, ScoringModel, SetEncoding, Worker
from scoring.models.scoring_model import ENCODERS
from scoring.selectors.encodings import encoding_row, made_by
from scoring.selectors.placements import placement_outlook
from scoring.services.chunks import liveness, worker_label
from scoring.services.placements import model_demand
from scoring.services.sets import document_set_check
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import COMING, SETTLED, EncodingState, PlacementDemand, WorkerState

OPEN: Final = (EncodingState.WAITING, EncodingState.RUNNING)
MOST_OPEN: Final = 20  # of a team
PATIENCE: Final = timedelta(seconds=120)  # then nobody will come


def encoding_ask(*, principal: Principal, document_set: DocumentSet, model: ScoringModel) -> list[SetEncoding]:
    """Have ``document_set`` encoded by every worker that holds ``model`` ready and has not encoded it yet; where none
    does, by the first that loads it. One row for each.

    Raises AssayError 422 ``wrong_model_kind``, 409 ``set_not_ready``, ``texts_deleted`` and ``already_encoded``, 429
    ``too_many_encodings``.
    """
    if model.kind not in ENCODERS or model.is_remote:
        kind = f"a {model.kind} model, which reads document and query together"
        what = "computed elsewhere" if model.is_remote else kind
        raise AssayError(
            "wrong_model_kind",
            f"Nothing can be encoded ahead by '{model.name}': it is {what}. Choose a model of the kinds "
            f"{', '.join(ENCODERS)} that is computed here.",
            status=422,
            param="model",
        )
    document_set_check(document_set)
    if SetEncoding.objects.for_team(principal.team).filter(state__in=OPEN).count() >= MOST_OPEN:
        message = f"{MOST_OPEN} encodings of your team wait or run already; wait until some have ended."
        raise AssayError("too_many_encodings", message, status=429, retry_after=30)
    with transaction.atomic():
        DocumentSet.objects.select_for_update(no_key=True).get(pk=document_set.pk)  # who asks twice at once asks once
        made = [_asked(principal, document_set, model, worker) for worker in _lacking(document_set, model)]
        detail = {"model": model.name, "workers": len(made)}
        audit_record(verb="document_set.encoding_requested", principal=principal, target=document_set, detail=detail)
        if any(row.worker is None for row in made):
            model_demand(model=model, demand=PlacementDemand.PERSON)
        transaction.on_commit(dispatch.workers_wake)
    return made


def _lacking(document_set: DocumentSet, model: ScoringModel) -> list[Worker | None]:
    """Workers that are to encode the set; a None stands for the first that will hold the model."""
    rows = [
        encoding_row(row)
        for row in SetEncoding.objects.filter(document_set=document_set, model=model).select_related("worker", "model")
    ]
    provided = {row.encoding.worker for row in rows if row.is_kept or row.encoding.state in OPEN}
    ready = list(Worker.objects.filter(placements__model=model, placements__state__in=SETTLED, state=WorkerState.READY))
    lacking: list[Worker | None] = [worker for worker in ready if worker not in provided]
    if None in provided or (not lacking and provided):
        raise AssayError(
            "already_encoded",
            f"The document set '{document_set.name}' is encoded by '{model.name}', or being encoded, on every worker "
            "that holds the model. Delete what there is to have it made anew.",
            status=409,
            param="model",
        )
    return lacking or [None]


def _asked(principal: Principal, document_set: DocumentSet, model: ScoringModel, worker: Worker | None) -> SetEncoding:
    encoding = SetEncoding(
        team=principal.team, created_by=principal.user, document_set=document_set, model=model, worker=worker,
        made_by=made_by(model), documents_total=document_set.counts.get("kept", 0),
    )  # fmt: skip
    encoding.save(force_insert=True)
    transition_record(encoding, "", EncodingState.WAITING, actor=principal.label, reason="asked").save()
    return encoding


def encoding_cancel(*, principal: Principal, encoding: SetEncoding) -> None:
    """What is encoded by then is kept. Raises AssayError 409 ``not_running`` where it has ended."""
    stopped = encoding.state in OPEN and transition(
        encoding, EncodingState.CANCELLED, actor=principal.label, reason="cancelled", finished_at=Now()
    )
    if not stopped:
        message = f"This encoding is {encoding.get_state_display()}; there is nothing to stop. Delete it instead."
        raise AssayError("not_running", message, status=409)
    _record("document_set.encoding_cancelled", principal, encoding)


def encoding_delete(*, principal: Principal, encoding: SetEncoding) -> None:
    """Let go of what the worker keeps; the row goes with it. Raises AssayError 409 ``still_running``."""
    if encoding.state in OPEN:
        message = f"This encoding is {encoding.get_state_display()}. Cancel it first."
        raise AssayError("still_running", message, status=409)
    if encoding.state == EncodingState.DELETING:
        return
    with transaction.atomic():
        _record("document_set.encoding_deleted", principal, encoding)
        transition(encoding, EncodingState.DELETING, actor=principal.label, reason="delete requested")
        if not encoding.key or encoding_row(encoding).lost:
            encoding.delete()  # there is nothing
        transaction.on_commit(dispatch.workers_wake)


def _record(verb: str, principal: Principal, encoding: SetEncoding) -> None:
    detail = {"model": encoding.model.name, "worker": str(encoding.worker or ""), "bytes": encoding.size}
    audit_record(verb=verb, principal=principal, target=encoding.document_set, detail=detail)


# The worker's side


def encoding_claim(*, worker: Worker) -> SetEncoding | None:
    """The oldest that waits for ``worker``, or for any, and whose model is ready there."""
    encoding = _waiting(worker).filter(_held(worker, SETTLED)).select_related("model", "document_set").first()
    if encoding is None:
        return None
    taken = transition(
        encoding, EncodingState.RUNNING, actor=worker_label(worker), reason="claimed", worker=worker,
        boot_id=worker.boot_id, started_at=Now(), made_by=made_by(encoding.model),
    )  # fmt: skip
    return encoding if taken else None


def _waiting(worker: Worker) -> QuerySet[SetEncoding]:
    mine = Q(worker=worker) | Q(worker=None)
    return SetEncoding.objects.filter(mine, state=EncodingState.WAITING).order_by("created_at")


def _held(worker: Any, states: Any) -> Exists:
    return Exists(Placement.objects.filter(model=OuterRef("model"), worker=worker, state__in=states))


def encoding_progress(*, encoding: SetEncoding, **figures: Any) -> bool:
    """Returns whether it is still wanted."""
    return SetEncoding.objects.filter(pk=encoding.pk, state=EncodingState.RUNNING).update(**figures) > 0


def encoding_finish(*, encoding: SetEncoding, worker: Worker) -> bool:
    return transition(encoding, EncodingState.DONE, actor=worker_label(worker), reason="done", finished_at=Now())


def encoding_fail(*, encoding: SetEncoding, worker: Worker, error: str) -> bool:
    actor = worker_label(worker)
    return transition(encoding, EncodingState.FAILED, actor=actor, reason="failed", error=error, finished_at=Now())


def encodings_to_delete(*, worker: Worker) -> list[SetEncoding]:
    rows = SetEncoding.objects.filter(worker=worker, state=EncodingState.DELETING)
    return list(rows.select_related("document_set"))


def encodings_reclaim() -> int:
    """The reconciler's part: what nobody can take, or whose worker's process ended, fails with a sentence; what was to
    be deleted on a worker that is gone is gone."""
    gone = Q(worker__state=WorkerState.GONE) | (Q(on_disk=False) & ~Q(worker__boot_id=F("boot_id")))
    ended, _ = SetEncoding.objects.filter(gone, state=EncodingState.DELETING).delete()
    silent = Q(worker__heartbeat_at__lt=Now() - liveness()) | Q(worker__state=WorkerState.GONE)
    orphaned = Q(state=EncodingState.RUNNING) & (~Q(worker__boot_id=F("boot_id")) | silent)
    on_its_way = Exists(Placement.objects.filter(model=OuterRef("model"), state__in=(*COMING, *SETTLED)))
    unclaimed = Q(state=EncodingState.WAITING, created_at__lt=Now() - PATIENCE) & (
        silent | (Q(worker=None) & ~on_its_way) | (Q(worker__isnull=False) & ~_held(OuterRef("worker"), SETTLED))
    )
    for encoding in SetEncoding.objects.filter(orphaned | unclaimed).select_related("worker", "model"):
        ended += transition(
            encoding, EncodingState.FAILED, actor=RECONCILER, reason="given up", error=_why(encoding), finished_at=Now()
        )
    return ended


def _why(encoding: SetEncoding) -> str:
    if encoding.state == EncodingState.RUNNING:
        return f"The worker {encoding.worker} ended meanwhile. Ask again: what it has on its disk is not encoded twice."
    return f"{placement_outlook(encoding.model).reason} Load the model, then ask again."
