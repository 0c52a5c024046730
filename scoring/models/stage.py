from __future__ import annotations

from django.db import models
from django.db.models import Q

from scoring.models.base import choice_constraint
from scoring.models.job import Job
from scoring.models.run_set import RunSet
from scoring.models.scoring_model import ScoringModel
from scoring.states import StageState


class StageMethod(models.TextChoices):
    MODEL = "model", "scored by a model"
    BM25 = "bm25", "retrieved by BM25"
    RUN = "run", "taken from an uploaded run"


class Stage(models.Model):
    """One ranking within a job. A job is one stage, a cascade (each the source of the next), or several of one source.

    A stage with a model scores, for each query, the documents that ``source`` kept with a score; without a source,
    every document of the set. A stage without a model retrieves: it finds documents itself, by BM25 or in ``run_set``.
    ``settings`` is the model, or the retrieval, as it was when the job was submitted, so that a result can be made
    again.

    The chunks form a grid over queries × candidates, ``query_block`` × ``document_block`` each until they are cut anew.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="stages")
    index = models.PositiveSmallIntegerField(help_text="counts from 0 in the order of the request")
    source = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="branches")
    method = models.CharField(max_length=16, choices=StageMethod, default=StageMethod.MODEL)
    model = models.ForeignKey(ScoringModel, on_delete=models.PROTECT, null=True, related_name="stages")
    run_set = models.ForeignKey(RunSet, on_delete=models.PROTECT, null=True, related_name="stages")
    model_revision = models.CharField(max_length=64, blank=True)
    settings = models.JSONField(default=dict)
    top_k = models.PositiveIntegerField(null=True, help_text="documents kept per query; empty: all")

    state = models.CharField(max_length=16, choices=StageState, default=StageState.WAITING)
    pair_count = models.PositiveBigIntegerField(
        help_text="pairs to score; an upper bound until the candidates are known"
    )
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
            models.CheckConstraint(
                condition=Q(method=StageMethod.RUN, run_set__isnull=False)
                | (~Q(method=StageMethod.RUN) & Q(run_set__isnull=True)),
                name="stage_run_set_iff_taken_from_one",
            ),
        )

    def __str__(self) -> str:
        """Short: the model, the run, or BM25."""
        return self.model.name if self.model else self.run_set.name if self.run_set else self.method.upper()

    @property
    def scorer(self) -> ScoringModel:
        """The model of a stage that has one."""
        if self.model is None:
            raise ValueError(f"Stage {self.index} of job {self.job_id} is {self.get_method_display()}, not by a model.")
        return self.model
