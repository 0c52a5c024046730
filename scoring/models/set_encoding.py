from __future__ import annotations

from django.db import models
from django.db.models import Q

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.document_set import DocumentSet
from scoring.models.scoring_model import ScoringModel
from scoring.models.worker import Worker
from scoring.states import EncodingState


class SetEncoding(OwnedModel):
    """A document set that one worker encodes ahead by one model, and what it then keeps of it.

    ``worker`` is empty until a worker that holds the model takes it, unless it was asked of that worker.
    """

    document_set = models.ForeignKey(DocumentSet, on_delete=models.CASCADE, related_name="encodings")
    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="+")
    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    boot_id = models.UUIDField(null=True, help_text="of the worker's process that took it")
    state = models.CharField(max_length=16, choices=EncodingState, default=EncodingState.WAITING)
    made_by = models.JSONField(default=dict, help_text="what of the model decides the encodings, when it was asked for")
    documents_total = models.PositiveIntegerField(default=0)
    documents_done = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0, help_text="bytes of the encodings so far")
    on_disk = models.BooleanField(default=False, help_text="kept on the worker's disk too: it survives a restart")
    key = models.JSONField(default=dict, help_text="under which the worker keeps them")
    error = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", EncodingState, "set_encoding_state"),)
        indexes = (
            models.Index(
                fields=("created_at",),
                condition=Q(state__in=(EncodingState.WAITING, EncodingState.RUNNING, EncodingState.DELETING)),
                name="set_encoding_open",
            ),
        )

    def __str__(self) -> str:
        return f"{self.document_set} by {self.model}"
