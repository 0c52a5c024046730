from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models.functions import Now

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.document_set import DocumentSet
from scoring.models.query_set import QuerySet
from scoring.states import JobEnd, JobState

if TYPE_CHECKING:
    from scoring.models.stage import Stage


class Job(OwnedModel):
    """A batch rerank: every query of a set against candidate documents, in one or several stages.

    ``end_reason`` says, once the job is being stopped or has ended, what ended it; the stages hold models and rankings.
    """

    token = models.ForeignKey("accounts.ApiToken", on_delete=models.SET_NULL, null=True, related_name="+")
    name = models.CharField(max_length=200)
    document_set = models.ForeignKey(DocumentSet, on_delete=models.PROTECT, related_name="jobs")
    query_set = models.ForeignKey(QuerySet, on_delete=models.PROTECT, related_name="jobs")
    priority = models.SmallIntegerField(default=0, help_text="higher runs first")
    start_at = models.DateTimeField(null=True, help_text="not queued before this")
    complete_within = models.PositiveIntegerField(null=True, help_text="seconds from being queued until it expires")
    max_error_rate = models.FloatField(default=0.5, help_text="share of failed pairs that stops a stage; 1: none does")
    cloned_from = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="clones")

    state = models.CharField(max_length=24, choices=JobState, default=JobState.QUEUED)
    failure = models.TextField(blank=True)
    query_count = models.PositiveIntegerField()
    document_count = models.PositiveIntegerField()
    pair_count = models.PositiveBigIntegerField(help_text="over all stages; an upper bound until they are open")
    attempt = models.PositiveSmallIntegerField(default=1, help_text="grows with every retry of what is unfinished")
    end_reason = models.CharField(max_length=16, choices=JobEnd, blank=True)
    statistics = models.JSONField(default=dict, help_text="written when the job ends: over all stages")
    idempotency_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL must not collide in the unique constraint
    request_fingerprint = models.CharField(
        max_length=64, blank=True, help_text="of the request that came with the idempotency key"
    )

    queued_at = models.DateTimeField(db_default=Now(), help_text="when it last joined the queue")
    expires_at = models.DateTimeField(null=True, help_text="what is not scored by then is left out")
    started_at = models.DateTimeField(null=True, help_text="the first lease since it last joined the queue")
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    scores_drop_begun_at = models.DateTimeField(
        null=True, editable=False, help_text="since when its chunks' scores go, so that it cannot be ranked anew"
    )
    scores_dropped_at = models.DateTimeField(null=True, editable=False)

    class Meta(OwnedModel.Meta):
        ordering = ("-queued_at",)
        constraints = (
            choice_constraint("state", JobState, "job_state"),
            models.UniqueConstraint(fields=("team", "idempotency_key"), name="job_idempotency_key"),
            choice_constraint("end_reason", JobEnd, "job_end_reason", blank=True),
        )
        indexes = (models.Index(fields=("team", "-queued_at"), name="job_team_recent"),)

    def __str__(self) -> str:
        return self.name

    @property
    def last_stage(self) -> Stage:
        """Whose ranking is the job's when no stage is named. Reads the prefetched stages where there are any."""
        return max(self.stages.all(), key=lambda stage: stage.index)

    @property
    def scored_by(self) -> str:
        """All its stages: an arrow leads to one that goes on from the stage before, a comma stands between others."""
        words, before = "", None
        for stage in self.stages.all():
            words += f"{' → ' if stage.source_id == before.pk else ', '}{stage}" if before else f"{stage}"
            before = stage
        return words
