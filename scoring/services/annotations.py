"""Bookmarks and notes of a person on the results of a job."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth.models import User

from assay.errors import AssayError
from scoring.models import Annotation, Job

LONGEST_NOTE: Final = 4_000  # characters


def annotation_set(
    *,
    user: User,
    job: Job,
    query_position: int,
    document_position: int,
    bookmarked: bool | None = None,
    note: str | None = None,
) -> Annotation | None:
    """Change what is given, keep what is None. Returns None when nothing is left to keep.

    Raises AssayError 404 ``no_such_pair`` for positions that the sets do not have, 422 ``note_too_long``.
    """
    if not (query_position < job.query_count and document_position < job.document_count):
        raise AssayError(
            "no_such_pair",
            f"Job '{job.name}' has queries 0 to {job.query_count - 1:,} and documents 0 to {job.document_count - 1:,}; "
            f"query {query_position:,} with document {document_position:,} is no pair of it.",
            status=404,
        )
    if note is not None and len(note) > LONGEST_NOTE:
        message = f"The note has {len(note):,} characters; shorten it to {LONGEST_NOTE:,}."
        raise AssayError("note_too_long", message, status=422, param="note")
    place: dict[str, Any] = {
        "user": user,
        "job": job,
        "query_position": query_position,
        "document_position": document_position,
    }
    now = Annotation.objects.filter(**place).first() or Annotation(**place)
    now.bookmarked = now.bookmarked if bookmarked is None else bookmarked
    now.note = now.note if note is None else note.strip()
    if now.bookmarked or now.note:
        changed = {"bookmarked": now.bookmarked, "note": now.note}
        return Annotation.objects.update_or_create(**place, defaults=changed)[0]
    Annotation.objects.filter(**place).delete()
    return None
