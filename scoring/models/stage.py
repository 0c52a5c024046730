from __future__ import annotations

from django.db import models
from django.db.models import Q

from scoring.models.base import choice_constraint
from scoring.models.job import Job
from scoring.models.scoring_model import ScoringModel
from scoring.states import StageState


class StageMethod(models.TextChoices):
    MODEL = "model", "scored by a model"
    BM25 = "bm25", "retrieved by BM25"
    RUN = "run", "taken from an uploaded run"


class Stage(models.Model):
    """One ranking within a job. A job is one stage, a cascade (each the source of the next), or several of one source.

    Candidates are what ``source`` kept for each query; without a source, every document of the set. ``settings`` is the
    model as it was when the job was submitted, so that a result can be reproduced after the model changed. The chunks
    form a grid over queries × candidates, ``query_block`` × ``document_block`` each until they are cut anew.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="stages")
    index = models.PositiveSmallIntegerField(help_text="counts from 0 in the order of the request")
    source = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="branches")
    method = models.CharField(max_length=16, choices=StageMethod, default=StageMethod.MODEL)
    model = models.ForeignKey(ScoringModel, on_delete=models.PROTECT, null=True, related_name="stages")
    model_revision = models.CharField(max_length=64, blank=True)
    settings = models.JSONField(default=dict)
    top_k = models.PositiveIntegerField(null=True, help_text="documents kept per query; empty: all")

    state = models.CharField(max_length=16, choices=StageState, default=StageState.WAITING)
    pair_count = models.PositiveBigIntegerField(help_text="pairs to score; an upper bound until the source is ranked")
    query_block = models.PositiveIntegerField(help_text="queries per chunk")
    document_block = models.PositiveIntegerField(help_text="candidates per chunk")
    statistics = models.JSONField(default=dict, help_text="written when the stage ends: counts by status, seconds, …")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("job", "index")
        constraints = (
            choice_constraint("state", StageState, "stage_state"),
            choice_constraint("method", StageMethod, "stage_method"),
            models.UniqueConstraint(fields=("job", "index"), name="stage_index"),
            models.CheckConstraint(
                condition=Q(method=StageMethod.MODEL, model__isnull=False)
                | (~Q(method=StageMethod.MODEL) & Q(model__isnull=True, source__isnull=True)),
                name="stage_model_iff_scored_by_one",
            ),
        )

    def __str__(self) -> str:
        return self.model.name if self.model else self.get_method_display()

    @property
    def scorer(self) -> ScoringModel:
        """The model of a stage that has one."""
        if self.model is None:
            raise ValueError(f"Stage {self.index} of job {self.job_id} is {self.get_method_display()}, not by a model.")
        return self.model
