from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from scoring.models.base import OwnedModel
from scoring.models.scoring_model import ScoringModel


class ScoreRequest(OwnedModel):
    """One synchronous request as it was answered. Texts are kept only if KEEP_REQUEST_TEXTS says so."""

    model = models.ForeignKey(ScoringModel, on_delete=models.SET_NULL, null=True, related_name="+")
    model_name = models.CharField(max_length=64)
    model_revision = models.CharField(max_length=64, blank=True)
    token = models.ForeignKey("accounts.ApiToken", on_delete=models.SET_NULL, null=True, related_name="+")
    endpoint = models.CharField(max_length=64)
    request_id = models.CharField(max_length=128, blank=True, help_text="as the client sent it; never a key")
    status_code = models.PositiveSmallIntegerField()
    error_code = models.CharField(max_length=64, blank=True)
    query_count = models.PositiveIntegerField(default=0)
    document_count = models.PositiveIntegerField(default=0)
    scored_count = models.PositiveIntegerField(default=0, db_default=0, help_text="pairs that got a score")
    compute_seconds = models.FloatField(
        default=0.0, db_default=0.0, help_text="of the engine, over all parts of the request"
    )
    prompt_tokens = models.PositiveIntegerField(default=0)
    queries = models.JSONField(null=True)
    documents = models.JSONField(null=True)
    results = models.JSONField(default=list, help_text="index, score, raw score and status per item")
    report = models.JSONField(default=dict, help_text="backend, dtype, scale, worker, cache hits")
    timings = models.JSONField(default=dict, help_text="milliseconds by phase")

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        indexes = (
            models.Index(fields=("team", "-created_at"), name="score_request_recent"),
            # Rows come in the order of time, so a summary of each range of pages finds a day.
            BrinIndex(fields=("created_at",), name="score_request_by_time"),
            # Few rows have texts, and only these are looked through by the retention.
            models.Index(fields=("created_at",), condition=models.Q(queries__isnull=False), name="score_request_texts"),
        )

    def __str__(self) -> str:
        return f"{self.endpoint} {self.id}"
