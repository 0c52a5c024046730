"""What models are called: a name belongs to one model, as its own or as an alias that can be moved to another."""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import connection, transaction
from django.db.models import QuerySet

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import ModelAlias, ScoringModel
from scoring.states import ModelState

LOCK: Final = 0x4E616D6573  # "Names"; two tables hold them, and no constraint spans both
RESERVED: Final = frozenset({"new"})  # what stands in a model's place in the address of a page


def alias_point(*, principal: Principal, name: str, model: ScoringModel) -> ModelAlias:
    """Make ``name`` an alias of ``model``, or move it there: whoever asks by it gets the one or the other, at no moment
    neither.

    Raises AssayError 409 ``name_taken`` where a model has that name, or another alias but for its case,
    ``model_not_served``; 422 ``invalid_alias``.
    """
    try:
        ModelAlias(name=name, model=model).clean_fields(exclude=["model", "moved_by"])
        validate_slug(name)
    except ValidationError as error:
        message = f"'{name[:64]}' cannot be an alias; give at most 64 letters, digits, - and _."
        raise AssayError("invalid_alias", message, status=422, param="name") from error
    _check_reserved(name, "invalid_alias")
    if model.state != ModelState.AVAILABLE:
        message = (
            f"'{model.name}' is not served ({model.get_state_display()}), so '{name}' cannot point at it; choose a "
            "model that passed its self-test."
        )
        raise AssayError("model_not_served", message, status=409, param="model")
    with transaction.atomic():
        names_lock()
        if (taken := _first(ScoringModel.objects.filter(name__iexact=name))) is not None:
            message = f"A model is called '{taken}' itself; give the alias another name, or rename the model."
            raise AssayError("name_taken", message, status=409, param="name")
        if (taken := _first(ModelAlias.objects.filter(name__iexact=name).exclude(name=name))) is not None:
            message = (
                f"There is an alias '{taken}', and names that differ in case alone would be mistaken for each other; "
                f"point '{taken}' at the model, or delete it first."
            )
            raise AssayError("name_taken", message, status=409, param="name")
        before = ModelAlias.objects.filter(name=name).values_list("model__name", flat=True).first()
        alias, _ = ModelAlias.objects.update_or_create(name=name, defaults={"model": model, "moved_by": principal.user})
        if before != model.name:
            detail = {"alias": name, "from": before or "", "to": model.name}
            audit_record(verb="model.alias_pointed", principal=principal, target=model, detail=detail)
    return alias


def alias_delete(*, principal: Principal, alias: ModelAlias) -> None:
    with transaction.atomic():
        detail = {"alias": alias.name, "from": alias.model.name}
        audit_record(verb="model.alias_deleted", principal=principal, target=alias.model, detail=detail)
        alias.delete()


def name_check(model: ScoringModel) -> None:
    """Inside the transaction that gives ``model`` its name. Raises AssayError 409 ``name_taken`` for one that an alias
    or another model has, be it in another case; 422 ``invalid_model`` for a word that stands in addresses of pages."""
    name = model.name
    _check_reserved(name, "invalid_model")
    names_lock()
    if (taken := _first(ModelAlias.objects.filter(name__iexact=name))) is not None:
        message = f"'{taken}' is an alias of another model; delete the alias first, or give another name."
        raise AssayError("name_taken", message, status=409, param="name")
    if (taken := _first(ScoringModel.objects.filter(name__iexact=name).exclude(pk=model.pk))) is not None:
        message = (
            f"A model named '{taken}' is registered already; choose another name, which differs not in case alone."
        )
        raise AssayError("name_taken", message, status=409, param="name")


def _first(rows: QuerySet[Any]) -> str | None:
    name: str | None = rows.values_list("name", flat=True).first()
    return name


def _check_reserved(name: str, code: str) -> None:
    if name.lower() in RESERVED:
        message = f"'{name}' cannot be a name: /models/{name.lower()}/ is the address of a page. Give another name."
        raise AssayError(code, message, status=422, param="name")


def names_lock() -> None:
    """Until the transaction ends, nobody else gives a name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
