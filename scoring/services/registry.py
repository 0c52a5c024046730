"""Registering models, changing them, and the life of a self-test. A self-test runs on a worker, asked by the row."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import ScoringModel, Worker
from scoring.models.scoring_model import ModelKind
from scoring.services.chunks import worker_label
from scoring.services.transitions import transition, transition_record
from scoring.states import ModelState

SELF_TEST_LEASE: Final = timedelta(seconds=180)
# Changing one of these changes the scores: the model must prove itself again.
DECIDES_SCORES: Final = frozenset(
    ("source", "gguf_file", "kind", "device", "dtype", "max_length", "template", "labels", "self_test_mode")
)
FOLLOWED_BY_WORKERS: Final = DECIDES_SCORES | {"gpu_maxsim"}
CHANGEABLE: Final = FOLLOWED_BY_WORKERS | {"is_default", "name"}
DEVICE: Final = re.compile(r"auto|cpu|cuda(:\d+)?")


def model_register(*, principal: Principal, **fields: Any) -> ScoringModel:
    """Write the model's row and ask for its self-test; it is served once a worker reports that it passed.

    Raises AssayError 409 ``name_taken``, 422 ``invalid_model`` naming the field.
    """
    model = ScoringModel(created_by=principal.user, **fields)
    _validate(model)
    try:
        with transaction.atomic():
            model.save(force_insert=True)
            transition_record(model, "", ModelState.REGISTERED, actor=principal.label, reason="registered").save()
            audit_record(verb="model.registered", principal=principal, target=model, detail={"source": model.source})
            transaction.on_commit(dispatch.workers_wake)
    except IntegrityError as error:
        raise AssayError(
            "name_taken",
            f"A model named '{model.name}' is registered already, or another one is the default for {model.kind}.",
            status=409,
            param="name",
        ) from error
    return model


def model_change(*, principal: Principal, model: ScoringModel, **fields: Any) -> ScoringModel:
    """Set ``fields``. Workers follow within seconds; what decides the scores sends the model back to its self-test."""
    if unknown := sorted(set(fields) - CHANGEABLE):
        message = f"{', '.join(unknown)} cannot be changed; register another model."
        raise AssayError("not_changeable", message, status=422)
    changed = {name: value for name, value in fields.items() if getattr(model, name) != value}
    if not changed:
        return model
    before = {name: getattr(model, name) for name in changed}
    for name, value in changed.items():
        setattr(model, name, value)
    _validate(model)
    with transaction.atomic():
        if changed.keys() & FOLLOWED_BY_WORKERS:
            model.generation += 1
        model.save(update_fields=[*changed, "generation", "updated_at"])
        detail = {name: [before[name], value] for name, value in changed.items()}
        audit_record(verb="model.changed", principal=principal, target=model, detail=detail)
        if changed.keys() & DECIDES_SCORES and model.state in (ModelState.AVAILABLE, ModelState.REJECTED):
            transition(model, ModelState.REGISTERED, actor=principal.label, reason="changed", detail=detail)
        transaction.on_commit(dispatch.workers_wake)
    return model


def model_self_test(*, principal: Principal, model: ScoringModel) -> ScoringModel:
    """Ask for a (new) self-test. Nothing changes while one is waiting or running."""
    if model.state not in (ModelState.REGISTERED, ModelState.TESTING):
        transition(model, ModelState.REGISTERED, actor=principal.label, reason="self-test requested")
        audit_record(verb="model.self_test_requested", principal=principal, target=model)
    dispatch.workers_wake()
    return model


def model_disable(*, principal: Principal, model: ScoringModel) -> ScoringModel:
    if model.state == ModelState.TESTING:
        message = f"The self-test of '{model.name}' is running; wait for its end."
        raise AssayError("self_test_running", message, status=409)
    if model.state != ModelState.DISABLED:
        transition(model, ModelState.DISABLED, actor=principal.label, reason="disabled")
        audit_record(verb="model.disabled", principal=principal, target=model)
    return model


# The worker's side


def self_test_claim(*, worker: Worker) -> ScoringModel | None:
    """Take one model that waits for its self-test; None when there is none or another worker was faster."""
    model = ScoringModel.objects.filter(state=ModelState.REGISTERED).order_by("created_at").first()
    if model is None:
        return None
    taken = transition(
        model,
        ModelState.TESTING,
        actor=worker_label(worker),
        reason="claimed",
        self_test_worker=worker,
        self_test_expires_at=Now() + SELF_TEST_LEASE,
    )
    return model if taken else None


def self_test_finish(
    *, model: ScoringModel, worker: Worker, passed: bool, report: dict[str, Any], revision: str, facts: dict[str, Any]
) -> bool:
    """Store the report. A changed revision or a failure means a new generation: workers must not keep what they had."""
    return transition(
        model,
        ModelState.AVAILABLE if passed else ModelState.REJECTED,
        actor=worker_label(worker),
        reason="self-test passed" if passed else "self-test failed",
        where=Q(self_test_worker=worker),
        self_test_report=report,
        self_test_expires_at=None,
        self_test_worker=None,
        revision=revision,
        facts=facts,
        generation=F("generation") + (0 if model.revision in ("", revision) else 1),
    )


def self_tests_reclaim() -> int:
    """The reconciler's part: a self-test whose worker went away waits for another worker."""
    overdue = ScoringModel.objects.filter(state=ModelState.TESTING, self_test_expires_at__lt=Now())
    return sum(
        transition(
            model,
            ModelState.REGISTERED,
            actor="reconciler",
            reason="self-test overdue",
            self_test_worker=None,
            self_test_expires_at=None,
        )
        for model in overdue
    )


def _validate(model: ScoringModel) -> None:
    try:
        model.clean_fields(exclude=["created_by", "self_test_worker"])
    except ValidationError as error:
        name, messages = next(iter(error.message_dict.items()))
        raise _invalid(name, f"'{name}' is {getattr(model, name)!r}: {messages[0]}") from error
    if not DEVICE.fullmatch(model.device):
        raise _invalid("device", f"'device' is {model.device!r}; give auto, cpu, cuda or cuda:N")
    if not isinstance(model.labels, list) or not all(isinstance(label, str) and label for label in model.labels):
        raise _invalid("labels", f"'labels' is {model.labels!r}; give a list of texts, the positive one first")
    if model.kind == ModelKind.GENERATIVE and len(model.labels) < 2:
        raise _invalid("labels", "A generative model needs at least two labels, the positive one first")
    if model.kind != ModelKind.GENERATIVE and (model.labels or model.template):
        raise _invalid("labels", f"Labels and a template belong to generative models; '{model.name}' is a {model.kind}")


def _invalid(param: str, message: str) -> AssayError:
    return AssayError("invalid_model", f"{message}.", status=422, param=param)
