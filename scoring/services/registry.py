"""Registering models, changing them, and the life of a self-test. A self-test runs on a worker, asked by the row."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import ScoringModel, Worker
from scoring.models.scoring_model import Dtype, ModelKind
from scoring.services.chunks import liveness, worker_label
from scoring.services.model_names import name_check
from scoring.services.placements import holders_wake, placements_retry
from scoring.services.remote_models import remote_check
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import ModelState

SELF_TEST_LEASE: Final = timedelta(seconds=600)  # large checkpoints take long; a dead worker is noticed sooner
MAX_INTERRUPTIONS: Final = 2
# Changing one of these changes the scores: the model must prove itself again.
DECIDES_SCORES: Final = frozenset(
    (
        "source", "gguf_file", "engine", "endpoint", "remote_model", "kind", "device", "dtype", "max_length",
        "template", "labels", "positive_class", "weights", "self_test_mode",
    )
)  # fmt: skip
FOLLOWED_BY_WORKERS: Final = DECIDES_SCORES | {"gpu_maxsim", "credential", "document_cache_bytes"}
PLACING: Final = frozenset(
    (
        "pinned", "min_replicas", "max_replicas", "memory_bytes", "min_residency", "max_concurrency", "cold_policy",
    )
)  # fmt: skip
CHANGEABLE: Final = FOLLOWED_BY_WORKERS | PLACING | {"is_default", "name"}
NO_SELF_TEST: Final[dict[str, Any]] = {"self_test_worker": None, "self_test_expires_at": None}
DEVICE: Final = re.compile(r"auto|cpu|cuda(:\d+)?")


def model_register(*, principal: Principal, **fields: Any) -> ScoringModel:
    """Write the model's row and ask for its self-test; it is served once a worker reports that it passed.

    Raises AssayError 409 ``name_taken``, 422 ``invalid_model`` naming the field.
    """
    model = ScoringModel(created_by=principal.user, **fields)
    model_check(model)
    try:
        with transaction.atomic():
            name_check(model)
            model.save(force_insert=True)
            transition_record(model, "", ModelState.REGISTERED, actor=principal.label, reason="registered").save()
            audit_record(
                verb="model.registered",
                principal=principal,
                target=model,
                detail={"source": model.source or model.engine},
            )
            transaction.on_commit(dispatch.workers_wake)
    except IntegrityError as error:
        raise _taken(model) from error
    return model


def model_change(*, principal: Principal, model: ScoringModel, **fields: Any) -> ScoringModel:
    """Set ``fields``. Workers follow within seconds; what decides the scores sends the model back to its self-test.

    Raises AssayError 409 ``name_taken``, 422 ``invalid_model`` or ``not_changeable``.
    """
    if unknown := sorted(set(fields) - CHANGEABLE):
        message = f"{', '.join(unknown)} cannot be changed; register another model."
        raise AssayError("not_changeable", message, status=422)
    changed = {name: value for name, value in fields.items() if getattr(model, name) != value}
    if not changed:
        return model
    before = {name: getattr(model, name) for name in changed}
    for name, value in changed.items():
        setattr(model, name, value)
    model_check(model)
    try:
        with transaction.atomic():
            if "name" in changed:
                name_check(model)
            if changed.keys() & FOLLOWED_BY_WORKERS:
                model.generation += 1
            if changed.keys() & DECIDES_SCORES:  # what was measured was of another model
                model.estimated_bytes, model.measured_bytes = None, {}
            model.save(update_fields=[*changed, "estimated_bytes", "measured_bytes", "generation", "updated_at"])
            placements_retry(model=model, actor=principal.label)
            detail = {name: [before[name], value] for name, value in changed.items()}
            audit_record(verb="model.changed", principal=principal, target=model, detail=detail)
            if changed.keys() & DECIDES_SCORES and model.state in (ModelState.AVAILABLE, ModelState.REJECTED):
                transition(model, ModelState.REGISTERED, actor=principal.label, reason="changed", detail=detail)
            transaction.on_commit(dispatch.workers_wake)
            transaction.on_commit(lambda: holders_wake(model))
    except IntegrityError as error:
        raise _taken(model) from error
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


def self_tests_waiting() -> QuerySet[ScoringModel]:
    """Who has waited longest comes first."""
    return ScoringModel.objects.filter(state=ModelState.REGISTERED).order_by("created_at")


def self_test_claim(*, worker: Worker, among: Collection[uuid.UUID] | None = None) -> ScoringModel | None:
    """Take one model that waits for its self-test, of those with the ids ``among`` if given; None when there is none or
    another worker was faster."""
    waiting = self_tests_waiting()
    model = (waiting if among is None else waiting.filter(pk__in=among)).first()
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
    """Store the report. A changed revision means a new generation: workers must not keep what they had.

    A model that was changed while it was being tested waits for its next test. Returns whether the report was stored.
    """
    finished = transition(
        model,
        ModelState.AVAILABLE if passed else ModelState.REJECTED,
        actor=worker_label(worker),
        reason="self-test passed" if passed else "self-test failed",
        where=Q(self_test_worker=worker, generation=model.generation),
        self_test_report=report,
        revision=revision,
        facts=facts,
        generation=F("generation") + (0 if model.revision in ("", revision) else 1),
        **NO_SELF_TEST,
    )
    if not finished:
        transition(
            model,
            ModelState.REGISTERED,
            actor=worker_label(worker),
            reason="changed during the self-test",
            where=Q(self_test_worker=worker),
            **NO_SELF_TEST,
        )
    return finished


def self_tests_interrupted(*, worker: Worker) -> int:
    """At the start of a worker: the tests that its previous process was at died with it.

    They are repeated, but not for ever: a model that ends its worker's process each time is rejected.
    """
    own = list(ScoringModel.objects.filter(state=ModelState.TESTING, self_test_worker=worker))
    for model in own:
        times = 1 + ((model.self_test_report or {}).get("interruptions") or 0)
        sentence = f"The worker's process ended during the self-test, {times} times in a row."
        check = {"name": "run", "passed": False, "detail": sentence}
        transition(
            model,
            ModelState.REGISTERED if times < MAX_INTERRUPTIONS else ModelState.REJECTED,
            actor=worker_label(worker),
            reason="self-test interrupted",
            self_test_report={"passed": False, "interruptions": times, "checks": [check], "golden_scores": []},
            **NO_SELF_TEST,
        )
    return len(own)


def self_test_give_back(*, model: ScoringModel, worker: Worker, reason: str) -> bool:
    """The model found no room on ``worker`` after all: it waits for another one, or for room there."""
    return transition(
        model,
        ModelState.REGISTERED,
        actor=worker_label(worker),
        reason=reason,
        where=Q(self_test_worker=worker),
        **NO_SELF_TEST,
    )


def self_test_release(*, worker: Worker) -> int:
    """At the orderly end of a worker: its tests wait for another one."""
    own = list(ScoringModel.objects.filter(state=ModelState.TESTING, self_test_worker=worker))
    return sum(
        transition(model, ModelState.REGISTERED, actor=worker_label(worker), reason="worker stopped", **NO_SELF_TEST)
        for model in own
    )


def self_tests_reclaim() -> int:
    """The reconciler's part: a self-test whose worker went away, or never ends, waits for another worker."""
    abandoned = Q(self_test_worker=None) | Q(self_test_worker__heartbeat_at__lt=Now() - liveness())
    overdue = ScoringModel.objects.filter(abandoned | Q(self_test_expires_at__lt=Now()), state=ModelState.TESTING)
    return sum(
        transition(model, ModelState.REGISTERED, actor=RECONCILER, reason="self-test overdue", **NO_SELF_TEST)
        for model in overdue
    )


def model_check(model: ScoringModel) -> None:
    """Raises AssayError 422 ``invalid_model`` naming the field at fault."""
    try:
        model.clean_fields(exclude=["created_by", "self_test_worker"])
    except ValidationError as error:
        name, messages = next(iter(error.message_dict.items()))
        raise _invalid(name, f"'{name}' is {getattr(model, name)!r}: {messages[0]}") from error
    remote_check(model)
    least, most = model.replicas_at_least, model.max_replicas
    if most is not None and most < max(least, 1):
        raise _invalid(
            "max_replicas",
            f"'max_replicas' is {most}, but the model is to be on at least {max(least, 1)} workers; give as many or "
            "more, or none for no limit",
        )
    if model.memory_bytes == 0:
        raise _invalid("memory_bytes", "'memory_bytes' is 0; give the bytes that a replica needs, or none to measure")
    if model.document_cache_bytes is not None and not model.keeps_encodings:
        why = "is computed elsewhere" if model.is_remote else f"is a {model.kind}, which reads no text by itself"
        raise _invalid(
            "document_cache_bytes",
            f"'document_cache_bytes' is {model.document_cache_bytes}, but '{model.name}' {why}: no encodings of "
            "documents are kept; give none",
        )
    if not DEVICE.fullmatch(model.device):
        raise _invalid("device", f"'device' is {model.device!r}; give auto, cpu, cuda or cuda:N")
    if model.dtype == Dtype.INT8 and model.device.startswith("cuda"):
        raise _invalid("dtype", f"int8 runs on the CPU only, and 'device' is {model.device!r}; give another dtype")
    if not isinstance(model.labels, list) or not all(isinstance(label, str) and label for label in model.labels):
        raise _invalid("labels", f"'labels' is {model.labels!r}; give a list of texts, the positive one first")
    if model.kind == ModelKind.GENERATIVE and len(model.labels) < 2:
        raise _invalid("labels", "A generative model needs at least two labels, the positive one first")
    if model.kind != ModelKind.GENERATIVE and not model.is_remote and (model.labels or model.template):
        raise _invalid("labels", f"Labels and a template belong to generative models; '{model.name}' is a {model.kind}")
    if model.kind != ModelKind.CROSS_ENCODER and model.positive_class:
        raise _invalid(
            "positive_class", f"A positive class belongs to cross-encoders; '{model.name}' is a {model.kind}"
        )
    if model.weights and model.kind != ModelKind.HYBRID:
        raise _invalid("weights", f"Weights belong to hybrid models; '{model.name}' is a {model.kind}")
    if model.weights != [] and not _are_weights(model.weights):
        raise _invalid(
            "weights",
            f"'weights' is {model.weights!r}; give three numbers of 0 and more, not all 0: for the dense, the sparse "
            "and the late-interaction score",
        )


_MOST_WEIGHT = 1e6  # their sum must stay a number


def _are_weights(given: Any) -> bool:
    if not isinstance(given, list) or len(given) != 3:
        return False
    numbers = all(isinstance(weight, int | float) and not isinstance(weight, bool) for weight in given)
    return numbers and all(0 <= weight <= _MOST_WEIGHT for weight in given) and any(given)


def _taken(model: ScoringModel) -> AssayError:
    return AssayError(
        "name_taken",
        f"A model named '{model.name}' is registered already, or another one is the default for {model.kind}.",
        status=409,
        param="name",
    )


def _invalid(param: str, message: str) -> AssayError:
    return AssayError("invalid_model", f"{message}.", status=422, param=param)
