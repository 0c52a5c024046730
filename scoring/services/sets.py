"""Deleting uploaded sets. Making them is an import."""

from __future__ import annotations

from collections import Counter

from django.db import transaction
from django.db.models import ProtectedError

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models.base import UploadedSet


def set_delete(*, principal: Principal, uploaded: UploadedSet) -> None:
    """Remove the set and its rows. Raises AssayError 409 ``set_in_use`` while a job or a pool refers to it."""
    noun = str(uploaded._meta.verbose_name)
    try:
        with transaction.atomic():
            audit_record(
                verb=f"{noun.replace(' ', '_')}.deleted", principal=principal, target=uploaded, detail=uploaded.counts
            )
            uploaded.delete()
    except ProtectedError as error:
        raise AssayError(
            "set_in_use",
            f"The {noun} '{uploaded.name}' cannot be deleted: {_referring(error)} refer to it, and could not be read "
            "without it.",
            status=409,
        ) from error


def _referring(error: ProtectedError) -> str:
    """Such as "2 jobs and 1 pools": of what there is."""
    nouns = (str(row._meta.verbose_name_plural) for row in error.protected_objects)
    return " and ".join(f"{count:,} {noun}" for noun, count in Counter(nouns).items())
