from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.document_set import DocumentSet
from scoring.models.judgement_set import JudgementSet, default_scale
from scoring.models.query_set import QuerySet
from scoring.states import PoolState


class JudgingRule(models.TextChoices):
    """How the grades that several judges gave a pair become one."""

    SINGLE = "single", "the first judge's grade"
    MAJORITY = "majority", "the most frequent grade (of equals, the lower)"
    MEDIAN = "median", "the median grade (of two, the lower)"
    MEAN = "mean", "the mean, rounded (halves down)"
    ADJUDICATED = "adjudicated", "only what was adjudicated"


class Pool(OwnedModel):
    """Pairs of a query and a document that people are to judge, in an order that tells nothing of where they are from.

    What is judged is published as the next version of ``base``'s set, or as a new set where there is none.
    """

    name = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=PoolState, default=PoolState.OPEN)
    query_set = models.ForeignKey(QuerySet, on_delete=models.PROTECT, related_name="pools")
    document_set = models.ForeignKey(DocumentSet, on_delete=models.PROTECT, related_name="pools")
    base = models.ForeignKey(
        JudgementSet,
        on_delete=models.SET_NULL,
        null=True,
        related_name="pools",
        help_text="the version whose judged pairs were left out",
    )
    scale = models.JSONField(default=default_scale, help_text="names of the grades 0, 1, …, worst first")
    relevant_from = models.PositiveSmallIntegerField(default=1)
    guidelines = models.TextField(blank=True, help_text="Markdown, for the judges")
    quorum = models.PositiveSmallIntegerField(default=1, help_text="judges per pair")
    rule = models.CharField(max_length=16, choices=JudgingRule, default=JudgingRule.SINGLE)
    sources = models.JSONField(default=list, help_text="stages and runs whose first documents these are, and how many")

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        constraints = (
            choice_constraint("state", PoolState, "pool_state"),
            choice_constraint("rule", JudgingRule, "pool_rule"),
            models.CheckConstraint(condition=Q(quorum__range=(1, 5)), name="pool_quorum"),
        )
        indexes = (models.Index(fields=("team", "-created_at"), name="pool_team_recent"),)

    def __str__(self) -> str:
        return self.name


class PoolPair(models.Model):
    """A query and a document by the ids of their files. ``origin`` is shown to nobody who still judges."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="pairs", db_index=False)
    place = models.PositiveIntegerField(help_text="shuffled; counts from 0")
    query_id = models.CharField(max_length=200)
    document_id = models.CharField(max_length=200)
    origin = models.JSONField(default=dict, help_text="ranks by source")

    class Meta:
        ordering = ("pool", "place")
        constraints = (
            models.UniqueConstraint(fields=("pool", "place"), name="pool_pair_place"),
            models.UniqueConstraint(fields=("pool", "query_id", "document_id"), name="pool_pair_once"),
        )

    def __str__(self) -> str:
        return f"{self.query_id} {self.document_id}"


class PairClaim(models.Model):
    """A pair that was handed to a person, theirs until ``expires_at``; ``later_at``: since when they put it off."""

    pair = models.ForeignKey(PoolPair, on_delete=models.CASCADE, related_name="claims", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField()
    later_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("pair", "user"), name="pair_claim_once"),)

    def __str__(self) -> str:
        return f"pair {self.pair_id} by {self.user_id}"
