from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.document_set import DocumentSet
from scoring.models.query_set import QuerySet
from scoring.models.scoring_model import ScoringModel
from scoring.states import JobState


class Job(OwnedModel):
    """A batch rerank: every query of a set against every candidate document, by one model.

    ``settings`` is the model as it was when the job was submitted, so that a result can be reproduced after the model
    changed. The chunks form a grid: ``query_blocks`` × ``document_blocks``.
    """

    name = models.CharField(max_length=200)
    model = models.ForeignKey(ScoringModel, on_delete=models.PROTECT, related_name="jobs")
    document_set = models.ForeignKey(DocumentSet, on_delete=models.PROTECT, related_name="jobs")
    query_set = models.ForeignKey(QuerySet, on_delete=models.PROTECT, related_name="jobs")
    top_k = models.PositiveIntegerField(null=True, help_text="documents kept per query; empty: all")
    priority = models.SmallIntegerField(default=0, help_text="higher runs first")
    settings = models.JSONField(default=dict)
    model_revision = models.CharField(max_length=64)

    state = models.CharField(max_length=24, choices=JobState, default=JobState.QUEUED)
    failure = models.TextField(blank=True)
    query_count = models.PositiveIntegerField()
    document_count = models.PositiveIntegerField()
    pair_count = models.PositiveBigIntegerField()
    query_block = models.PositiveIntegerField(help_text="queries per chunk")
    document_block = models.PositiveIntegerField(help_text="documents per chunk")
    statistics = models.JSONField(default=dict, help_text="written when the job ends: counts by status, seconds, …")
    idempotency_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL must not collide in the unique constraint

    queued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)

    class Meta(OwnedModel.Meta):
        ordering = ("-queued_at",)
        constraints = (
            choice_constraint("state", JobState, "job_state"),
            models.UniqueConstraint(fields=("team", "idempotency_key"), name="job_idempotency_key"),
            models.CheckConstraint(
                condition=Q(pair_count=F("query_count") * F("document_count")), name="job_pairs_are_queries_x_documents"
            ),
        )
        indexes = (models.Index(fields=("team", "-queued_at"), name="job_team_recent"),)

    def __str__(self) -> str:
        return self.name
