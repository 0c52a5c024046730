from __future__ import annotations

from django.db import models
from django.db.models import Q

from scoring.models.base import choice_constraint
from scoring.models.job import Job
from scoring.models.stage import Stage
from scoring.models.worker import Worker
from scoring.states import ChunkCause, ChunkState


class Chunk(models.Model):
    """A block of a stage: queries [query_start, query_start + query_count), by position, × candidates likewise.

    Candidates count by document position where the stage has no source, else by rank in the source's ranking of each
    query; ``document_positions`` of a stage that retrieves instead of scoring holds what it found, int32 [Q, D].

    A lease is valid only for the holder of ``lease_token``: completion is refused when another worker took over.
    ``raw_scores`` and ``scores`` are little-endian float32 [query_count, document_count], query-major, NaN = no score;
    ``scores`` is empty where activation changes nothing. ``statuses``: one byte per pair, an index into ITEM_STATUSES.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="chunks")
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="chunks")
    index = models.PositiveIntegerField()
    query_start = models.PositiveIntegerField()
    query_count = models.PositiveIntegerField()
    document_start = models.PositiveIntegerField()
    document_count = models.PositiveIntegerField()

    state = models.CharField(max_length=16, choices=ChunkState, default=ChunkState.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="crashes and item errors only")
    cause = models.CharField(max_length=16, choices=ChunkCause, blank=True, help_text="why it last came back")
    error = models.TextField(blank=True)
    lease_owner = models.ForeignKey(Worker, on_delete=models.SET_NULL, null=True, related_name="leased_chunks")
    lease_boot = models.UUIDField(null=True, help_text="the owner's process at the time of the lease")
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    raw_scores = models.BinaryField(default=b"")
    scores = models.BinaryField(default=b"")
    document_positions = models.BinaryField(default=b"")
    statuses = models.BinaryField(default=b"")
    report = models.JSONField(default=dict, help_text="backend, dtype, tokens, cache hits, timings of the run")

    class Meta:
        ordering = ("stage", "index")
        constraints = (
            choice_constraint("state", ChunkState, "chunk_state"),
            models.UniqueConstraint(fields=("stage", "query_start", "document_start"), name="chunk_place"),
            models.CheckConstraint(
                condition=Q(state=ChunkState.LEASED, lease_token__isnull=False, lease_expires_at__isnull=False)
                | (~Q(state=ChunkState.LEASED) & Q(lease_token__isnull=True, lease_expires_at__isnull=True)),
                name="chunk_lease_iff_leased",
            ),
        )
        indexes = (
            models.Index(fields=("state", "lease_expires_at"), name="chunk_expiry"),
            models.Index(fields=("job", "index"), condition=Q(state=ChunkState.PENDING), name="chunk_pending"),
        )

    def __str__(self) -> str:
        return f"{self.job_id}#{self.index}"

    @property
    def pair_count(self) -> int:
        return self.query_count * self.document_count
