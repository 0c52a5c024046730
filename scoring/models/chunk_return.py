from __future__ import annotations

from django.db import models

from scoring.models.base import choice_constraint
from scoring.states import ChunkCause


class ChunkReturn(models.Model):
    """How many chunks ever came back for one cause: a counter that outlives processes, chunks and deleted jobs."""

    cause = models.CharField(max_length=16, primary_key=True, choices=ChunkCause)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (choice_constraint("cause", ChunkCause, "chunk_return_cause"),)

    def __str__(self) -> str:
        return f"{self.cause}: {self.count:,}"
