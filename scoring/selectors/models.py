"""Reads about registered models."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, OuterRef, Q, QuerySet

from assay.api.principal import Principal
from assay.api.sentences import shortened
from assay.errors import AssayError
from assay.kept import Kept
from scoring.models import Job, ModelAlias, ScoringModel, Stage
from scoring.models.scoring_model import ModelKind
from scoring.states import FINAL_JOB_STATES, ModelState, PlacementState, StageState, WorkerState

# The order in which an endpoint without a model looks for a default one.
RERANKERS = (
    ModelKind.CROSS_ENCODER,
    ModelKind.LATE_INTERACTION,
    ModelKind.HYBRID,
    ModelKind.LISTWISE,
    ModelKind.BI_ENCODER,
    ModelKind.SPARSE,
    ModelKind.GENERATIVE,
)
GENERATIVE = (ModelKind.GENERATIVE,)
EMBEDDERS = (ModelKind.BI_ENCODER, ModelKind.HYBRID)
SPARSE_EMBEDDERS = (ModelKind.SPARSE, ModelKind.HYBRID)
TOKEN_EMBEDDERS = (ModelKind.LATE_INTERACTION, ModelKind.HYBRID)
CLASSIFIERS = (ModelKind.CLASSIFIER,)
# Of one text, or one token, each by itself.
POOLERS = (*EMBEDDERS, ModelKind.LATE_INTERACTION, ModelKind.SPARSE, *CLASSIFIERS)
JOBS_NAMED: Final = 10


def models_by_names() -> QuerySet[Any]:
    """Every model with ``alias_names``, in one query."""
    named = ArraySubquery(ModelAlias.objects.filter(model=OuterRef("pk")).values("name"))
    return ScoringModel.objects.annotate(alias_names=named).order_by("name")


models_kept: Final = Kept[None, list[Any]](lambda _: list(models_by_names()))


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """Jobs that have not ended and still need a model: ``count`` of all teams, ``ids`` the reader's own oldest ones."""

    count: int
    ids: list[uuid.UUID]


def models_served() -> QuerySet[ScoringModel]:
    return ScoringModel.objects.filter(state=ModelState.AVAILABLE)


def rerankers_served() -> QuerySet[ScoringModel]:
    """Those that give a document a score for a query."""
    return models_served().filter(kind__in=RERANKERS)


def models_with_placements() -> QuerySet[ScoringModel]:
    """Every model with ``ready_count``, on how many live workers it is ready, and ``alias_names``."""
    ready = Q(placements__state=PlacementState.READY, placements__worker__state=WorkerState.READY)
    return models_by_names().annotate(ready_count=Count("placements", filter=ready))


def model_own_name(name: str) -> str:
    """The own name of the model that ``name`` is an alias of, else ``name``."""
    return ModelAlias.objects.filter(name=name).values_list("model__name", flat=True).first() or name


def models_usable(models: QuerySet[ScoringModel], principal: Principal) -> QuerySet[ScoringModel]:
    """Of ``models``, those that the principal's token is for."""
    return models.filter(name__in=principal.allowed_models) if principal.allowed_models else models


def model_for_request(*, principal: Principal, name: str | None, kinds: Sequence[ModelKind]) -> ScoringModel:
    """The model named, by its own name or by an alias, or the default one of the first of ``kinds`` that has one: of
    those that the principal may use.

    Nobody is refused by rows read moments ago.

    Raises PermissionDenied for a model that its token is not for; AssayError 404 ``model_not_found`` naming what is
    served, 409 for one not served now, 422 for a wrong kind.
    """
    try:
        return _chosen(models_kept.get(None), principal, name, kinds)
    except AssayError:
        return _chosen(models_kept.get(None, afresh=True), principal, name, kinds)


def _chosen(models: Sequence[Any], principal: Principal, name: str | None, kinds: Sequence[ModelKind]) -> ScoringModel:
    served = [
        model
        for model in models
        if model.state == ModelState.AVAILABLE and model.kind in kinds and principal.may_use(model.name)
    ]
    if not name:
        return _default(served, kinds)
    model = next((model for model in models if model.name == name or name in model.alias_names), None)
    principal.require_model(name if model is None else model.name, asked=name)  # it is for models, not for aliases
    if model is None:
        raise AssayError(
            "model_not_found",
            f"Model '{shortened(name)}' is not registered. Served here: {_names(served)}.",
            status=404,
            param="model",
            extra={"models": [model.name for model in served]},
        )
    if model.kind not in kinds:
        raise AssayError(
            "wrong_model_kind",
            f"Model '{name}' is a {model.kind} model, not for this endpoint. Served here: {_names(served)}.",
            status=422,
            param="model",
        )
    if model.state != ModelState.AVAILABLE:
        raise AssayError(
            "model_not_served",
            f"Model '{name}' is not served now ({model.get_state_display()}). Served here: {_names(served)}.",
            status=409,
            param="model",
        )
    return model


def _default(served: Sequence[ScoringModel], kinds: Sequence[ModelKind]) -> ScoringModel:
    defaults = {model.kind: model for model in served if model.is_default}
    chosen = next((defaults[kind] for kind in kinds if kind in defaults), served[0] if len(served) == 1 else None)
    if chosen is None:
        instead = f"give 'model': {_names(served)}" if served else f"register one of these kinds: {', '.join(kinds)}"
        raise AssayError(
            "model_required",
            f"No model was named and none is the default here; {instead}.",
            status=422,
            param="model",
        )
    return chosen


def model_open_jobs(model: ScoringModel, *, principal: Principal) -> OpenJobs:
    needing = Stage.objects.filter(model=model, state__in=(StageState.WAITING, StageState.RUNNING))
    jobs = Job.objects.filter(pk__in=needing.values("job")).exclude(state__in=FINAL_JOB_STATES)
    own = jobs.filter(team=principal.team).order_by("queued_at").values_list("pk", flat=True)
    return OpenJobs(jobs.count(), list(own[:JOBS_NAMED]))


def model_card(model: Any) -> dict[str, Any]:
    """What a client may know of a model; ``model`` comes from ``models_with_placements``."""
    state = model.state
    if state == ModelState.AVAILABLE:
        state = f"ready on {model.ready_count}" if model.ready_count else "loaded on first use"
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.created_at.timestamp()),
        "owned_by": "assay",
        "kind": model.kind,
        "scale": model.facts.get("scale"),
        "max_model_len": model.facts.get("max_length"),
        "dtype": model.facts.get("dtype", model.dtype),
        "device": model.facts.get("device", model.device),
        "revision": model.revision,
        "gpu_maxsim": model.gpu_maxsim,
        "is_default": model.is_default,
        "aliases": model.alias_names,
        "labels": model.labels,
        "positive_class": model.positive_class,
        "weights": model.weights,
        "state": state,
    }


def _names(models: Sequence[ScoringModel]) -> str:
    return ", ".join(repr(model.name) for model in models) or "none yet"
