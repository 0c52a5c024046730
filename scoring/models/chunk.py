from __future__ import annotations

from typing import Final

from django.db import models
from django.db.models import Q

from scoring.models.base import choice_constraint
from scoring.models.job import Job
from scoring.models.stage import Stage
from scoring.models.worker import Worker
from scoring.states import ChunkCause, ChunkState

BLOBS: Final = ("raw_scores", "scores", "document_positions", "statuses")  # read only by whoever ranks

PENDING = Q(state=ChunkState.PENDING)
LEASED = Q(state=ChunkState.LEASED)
DONE = Q(state=ChunkState.DONE)
# Ended with failures, or without a single score: what decides whether a job is hopeless. Few rows, so a small index.
IN_TROUBLE = Q(state=ChunkState.FAILED) | Q(failed_pairs__gt=0) | Q(scored_pairs=0)


class Chunk(models.Model):
    """A block of a stage: queries [query_start, query_start + query_count), by position, × candidates likewise.

    Candidates count by document position where the stage has no source, else by rank in the source's ranking of each
    query; ``document_positions`` of a stage that retrieves instead of scoring holds what it found, int32 [Q, D]. The
    block is a rectangle though lists differ in length: behind the end of a query's list its cells are no pairs.

    What is pending may be cut anew, to fit the measured speed or to isolate what crashes workers: places change, but
    every pair of an open stage is in exactly one chunk. ``index`` is the order of work, not a key.

    A lease is valid only for the holder of ``lease_token``: completion is refused when another worker took over.
    ``raw_scores`` and ``scores`` are little-endian float32 [query_count, document_count], query-major, NaN = no score;
    ``scores`` is empty where activation changes nothing. ``statuses``: one byte per pair, an index into ITEM_STATUSES,
    or ABSENT where there is no pair.
    A failed chunk stores none of these: each of its pairs failed with ``cause``. Long after the end of the job nobody
    does: the rankings stay, see ``services.retention``.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="chunks")
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="chunks")
    index = models.PositiveIntegerField()
    query_start = models.PositiveIntegerField()
    query_count = models.PositiveIntegerField()
    document_start = models.PositiveIntegerField()
    document_count = models.PositiveIntegerField()

    state = models.CharField(max_length=16, choices=ChunkState, default=ChunkState.PENDING)
    attempts = models.PositiveSmallIntegerField(
        default=0, help_text="crashes and item errors of its pairs, also before it was cut"
    )
    cause = models.CharField(max_length=16, choices=ChunkCause, blank=True, help_text="why it last came back")
    error = models.TextField(blank=True)
    lease_owner = models.ForeignKey(Worker, on_delete=models.SET_NULL, null=True, related_name="leased_chunks")
    lease_boot = models.UUIDField(null=True, help_text="the owner's process at the time of the lease")
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    scored_pairs = models.PositiveIntegerField(null=True, help_text="with a score; set when done")
    failed_pairs = models.PositiveIntegerField(default=0, help_text="that could not be scored; set when done")
    raw_scores = models.BinaryField(default=b"")
    scores = models.BinaryField(default=b"")
    document_positions = models.BinaryField(default=b"")
    statuses = models.BinaryField(default=b"")
    pair_count = models.PositiveIntegerField(default=0, help_text="pairs in it, written with their scores")
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
            # In the order in which a stage's chunks are leased: what crashed before comes last.
            models.Index(fields=("stage", "attempts", "index"), condition=PENDING, name="chunk_pending"),
            models.Index(fields=("stage",), condition=LEASED, name="chunk_leased"),
            models.Index(fields=("stage", "-finished_at"), condition=DONE, name="chunk_done"),
            models.Index(fields=("stage",), condition=Q(attempts__gte=2), name="chunk_suspect"),
            models.Index(fields=("job", "finished_at"), condition=IN_TROUBLE, name="chunk_in_trouble"),
        )

    def __str__(self) -> str:
        return f"{self.job_id}#{self.index}"
