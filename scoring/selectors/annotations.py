"""Reads about a person's bookmarks and notes."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import User

from scoring.models import Annotation, Job


def annotations_of(
    *, user: User | None, job: Job, query_position: int, document_positions: Iterable[int]
) -> dict[int, Annotation]:
    """By document position, those of one query."""
    own = Annotation.objects.filter(
        user=user, job=job, query_position=query_position, document_position__in=list(document_positions)
    )
    return {annotation.document_position: annotation for annotation in own}
