"""Deleting uploaded sets, and whether one can be used. Making them is an import."""

from __future__ import annotations

from django.db import transaction
from django.db.models import PROTECT, ProtectedError
from django.db.models.functions import Greatest

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import DocumentSet, JudgementSet, Pool
from scoring.models.base import UploadedSet
from scoring.states import SetState


def set_delete(*, principal: Principal, uploaded: UploadedSet) -> None:
    """Remove the set and its rows. Raises AssayError 409 ``set_in_use`` while a job or a pool refers to it."""
    noun = str(uploaded._meta.verbose_name)
    _check_unused(uploaded)
    try:
        with transaction.atomic():
            audit_record(
                verb=f"{noun.replace(' ', '_')}.deleted", principal=principal, target=uploaded, detail=uploaded.counts
            )
            if isinstance(uploaded, JudgementSet):
                _keep_in_line(uploaded)
            uploaded.delete()
    except ProtectedError:  # of what came since
        _check_unused(uploaded)
        raise


def _check_unused(uploaded: UploadedSet) -> None:
    """Counts what keeps the set: the rows that refer to it, with all results of a job, need not be read for that."""
    counts = {
        relation.related_model: relation.related_model._base_manager.filter(**{relation.field.name: uploaded}).count()
        for relation in uploaded._meta.related_objects
        if relation.on_delete is PROTECT
    }
    if referring := " and ".join(
        f"{count:,} {model._meta.verbose_name if count == 1 else model._meta.verbose_name_plural}"
        for model, count in counts.items()
        if count
    ):
        raise AssayError(
            "set_in_use",
            f"The {uploaded._meta.verbose_name} '{uploaded.name}' cannot be deleted: {referring} could not be read "
            "without it. Delete what uses it first.",
            status=409,
        )


def _keep_in_line(version: JudgementSet) -> None:
    """Pools that publish after ``version`` go on after another version of the same set: published as a set of its own,
    their grades would stand without all the others. Its number never comes again."""
    others = JudgementSet.objects.filter(root=version.root).exclude(pk=version.pk)
    ready = others.filter(state=SetState.READY).order_by("-version")
    Pool.objects.filter(base=version).update(base=ready.first())
    others.update(highest_gone=Greatest("highest_gone", version.version, version.highest_gone))


def document_set_check(document_set: DocumentSet) -> None:
    """Raises AssayError 409 ``texts_deleted`` or ``set_not_ready`` for a set that nothing can be computed over."""
    if document_set.texts_delete_requested_at is not None:
        raise AssayError(
            "texts_deleted",
            f"The texts of the document set '{document_set.name}' were deleted on "
            f"{document_set.texts_delete_requested_at:%Y-%m-%d}, and nothing of it can be scored again. Upload the "
            "file once more.",
            status=409,
        )
    if document_set.state != SetState.READY:
        raise AssayError(
            "set_not_ready",
            f"The document set '{document_set.name}' is {document_set.get_state_display()}; it can be used once it "
            "is ready.",
            status=409,
        )
