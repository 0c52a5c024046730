from __future__ import annotations

from django.db import models

from scoring.models.query_set import Query
from scoring.models.stage import Stage


class QueryResult(models.Model):
    """The ranking of one query in one stage: the single order that every page, measure and export uses.

    Arrays of equal length n, best first (rank r is element r - 1), packed little-endian: 9 to 13 bytes a pair, not a
    table row. ``positions`` int32: the documents' positions in their set; ``raw_scores`` float32; ``scores`` float32
    after activation, empty where that changes nothing; ``statuses`` one byte, an index into ITEM_STATUSES.
    Order: scored before unscored, raw score descending, position ascending; a stage taken from a run keeps the run's.
    """

    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="results")
    query = models.ForeignKey(Query, on_delete=models.PROTECT, related_name="+")
    query_position = models.PositiveIntegerField()
    kept = models.PositiveIntegerField(help_text="documents in this ranking")
    scored = models.PositiveIntegerField(help_text="of these, with a score")
    tied_pairs = models.PositiveBigIntegerField(
        null=True, help_text="pairs of documents with the same raw score; empty: ranked before this was counted"
    )
    tied_at_top = models.PositiveBigIntegerField(
        null=True, help_text="of these, with one among the first TOP and the other behind"
    )
    positions = models.BinaryField()
    raw_scores = models.BinaryField()
    scores = models.BinaryField(default=b"")
    statuses = models.BinaryField()

    class Meta:
        ordering = ("stage", "query_position")
        constraints = (models.UniqueConstraint(fields=("stage", "query_position"), name="query_result_once"),)

    def __str__(self) -> str:
        return f"stage {self.stage_id} query {self.query_position}"
