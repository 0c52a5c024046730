from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from scoring.models.job import Job


class Annotation(models.Model):
    """What a person keeps about one document of one query of a job: a bookmark, a note, or both. Theirs alone.

    Query and document are named by position, as rankings name them; both sets stay for as long as the job does.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="annotations")
    query_position = models.PositiveIntegerField()
    document_position = models.PositiveIntegerField()
    bookmarked = models.BooleanField(default=False)
    note = models.TextField(blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("job", "query_position", "document_position")
        constraints = (
            models.UniqueConstraint(
                fields=("job", "user", "query_position", "document_position"), name="annotation_once"
            ),
            models.CheckConstraint(condition=Q(bookmarked=True) | ~Q(note=""), name="annotation_says_something"),
        )

    def __str__(self) -> str:
        return f"job {self.job_id} query {self.query_position} document {self.document_position}"
