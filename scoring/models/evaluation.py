from __future__ import annotations

from django.db import models

from scoring.models.base import OwnedModel
from scoring.models.judgement_set import JudgementSet
from scoring.models.stage import Stage


class Evaluation(OwnedModel):
    """One ranking measured against one version of a judgement set, once; it changes no more.

    ``key`` tells what it was computed from: stage and when it was ranked, judgements, measures, code. ``pinned`` says
    the same to people. ``figures`` is a list by measure: ``measure``, ``mean``, ``judged`` (Judged at its cut-off),
    ``worst`` and ``best`` over the orders of tied documents, and whether these differ, ``tie_sensitive``. ``arrays``
    holds the rest by query, see ``selectors.evaluations.EvaluationArrays``.
    """

    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="evaluations")
    judgement_set = models.ForeignKey(JudgementSet, on_delete=models.SET_NULL, null=True, related_name="evaluations")
    key = models.CharField(max_length=64, unique=True)
    ranked_at = models.DateTimeField(null=True, help_text="when the ranking that was measured had been made")
    measures = models.JSONField(help_text="names as ir-measures writes them, in order")
    only_relevant = models.BooleanField(default=False, help_text="queries without a relevant document are left out")
    figures = models.JSONField()
    pinned = models.JSONField(help_text="names, checksums and versions of all that went into it")
    query_count = models.PositiveIntegerField(help_text="of the query set")
    evaluated = models.PositiveIntegerField(help_text="queries in the means")
    unjudged = models.PositiveIntegerField(help_text="queries left out because nobody judged a document for them")
    without_results = models.PositiveIntegerField(help_text="judged queries without results, counted 0")
    without_relevant = models.PositiveIntegerField(help_text="judged queries without a relevant document")
    incomplete = models.BooleanField(help_text="not every pair of the job was scored: the means are partial")
    arrays = models.BinaryField()

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        indexes = (models.Index(fields=("team", "-created_at"), name="evaluation_team_recent"),)

    @property
    def judged_by_itself(self) -> bool:
        """Whether grades that the measured model gave are among the judgements."""
        judges = self.pinned["judgement_set"].get("models", ())
        return self.stage.model is not None and self.stage.model.name in judges

    def __str__(self) -> str:
        return f"{self.stage} against {self.pinned['judgement_set']['name']}"
