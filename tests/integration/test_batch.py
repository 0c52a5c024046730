"""Chunks through the loops of a worker, and what becomes of those that cannot be scored."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from scoring.models import Chunk, Document, Job, Transition
from scoring.ranking import ScoreBlock
from scoring.selectors.jobs import job_progress
from scoring.services import claims
from scoring.services.chunks import chunk_lease
from scoring.services.placements import model_unload
from scoring.services.registry import model_change, model_disable, model_self_test
from scoring.states import ChunkCause, ChunkState, ItemStatus, ModelState, PlacementState
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig, wait_for
from workers.batch import ChunkInHand
from workers.engine.types import ScoringRequest


def ended(job: Job) -> bool:
    return not Chunk.objects.filter(job=job, state__in=(ChunkState.PENDING, ChunkState.LEASED)).exists()


def test_a_job_is_scored_as_the_engine_scores(rig: Rig, make_job: MakeJob) -> None:
    model = rig.register("late")
    job = make_job(model, chunks=3, texts=lambda n: "" if n == 70 else f"river {n} bees {n % 7}")
    rig.batch.start()
    wait_for(lambda: ended(job))
    documents = tuple(Document.objects.order_by("position").values_list("text", flat=True))
    expected = rig.engine.submit(ScoringRequest("late", ("first", "second"), documents)).result()
    blocks = [ScoreBlock.unpack(c, (c.query_count, c.document_count)) for c in Chunk.objects.order_by("index")]
    raw = np.concatenate([block.raw for block in blocks], axis=1)
    np.testing.assert_allclose(raw, expected.raw_scores.reshape(raw.shape), atol=1e-5)
    statuses = np.concatenate([block.statuses for block in blocks], axis=1)
    assert np.flatnonzero(statuses[0] == list(ItemStatus).index(ItemStatus.EMPTY)).tolist() == [70]
    report = Chunk.objects.order_by("index")[0].report
    assert (report["dtype"], report["revision"], report["worker"]) == ("float32", model.revision, "worker-1")
    assert report["prompt_tokens"] > 0


def test_a_job_gets_its_model_loaded(rig: Rig, make_job: MakeJob) -> None:
    model = rig.register("late")
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    rig.batch.start()
    job = make_job(model, chunks=1)
    wait_for(lambda: ended(job))
    assert Chunk.objects.get().state == ChunkState.DONE


def test_a_model_that_cannot_be_loaded_fails_its_job_in_words(
    rig: Rig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BACK_OFF_SECONDS", 0.2)
    model = rig.register("late")
    model_unload(principal=rig.principal, model=model)
    rig.wait_for_placement(model, PlacementState.UNLOADED)
    shutil.rmtree(Path(model.source))
    job = make_job(model, chunks=2)
    rig.batch.start()
    wait_for(lambda: ended(job))
    chunks = list(Chunk.objects.values_list("state", "attempts", "cause"))
    assert chunks == [(ChunkState.FAILED, 1, ChunkCause.ITEM_ERROR)] * 2
    assert "there is no folder" in Chunk.objects.values_list("error", flat=True)[0]


def test_a_job_does_not_mix_two_versions_of_a_model(rig: Rig, make_job: MakeJob) -> None:
    model = rig.register("late")
    job = make_job(model, chunks=1)
    model_change(principal=rig.principal, model=model, max_length=16)
    rig.wait_for_state(model, ModelState.AVAILABLE)
    rig.batch.start()
    wait_for(lambda: ended(job))
    chunk = Chunk.objects.get()
    assert chunk.state == ChunkState.FAILED
    assert "changed after the job was submitted (max_length)" in chunk.error


def test_the_toggle_does_not_end_a_job(rig: Rig, make_job: MakeJob) -> None:
    model = rig.register("late")
    job = make_job(model, chunks=1)
    model_change(principal=rig.principal, model=model, gpu_maxsim=False)
    rig.batch.start()
    wait_for(lambda: ended(job))
    assert Chunk.objects.get().state == ChunkState.DONE


def test_a_job_waits_while_its_model_is_disabled_and_then_goes_on(rig: Rig, make_job: MakeJob) -> None:
    model = rig.register("late")
    job = make_job(model, chunks=40)
    rig.batch.start()
    wait_for(rig.batch.in_hand)
    model_disable(principal=rig.principal, model=model)
    wait_for(lambda: not (rig.batch.in_hand() or rig.engine.models()))
    states = set(Chunk.objects.values_list("state", flat=True))
    assert ChunkState.PENDING in states <= {ChunkState.PENDING, ChunkState.DONE}
    assert job_progress(job).waiting.code == "model_not_served"
    model_self_test(principal=rig.principal, model=model)
    wait_for(lambda: ended(job))
    assert set(Chunk.objects.values_list("state", "attempts", "error")) == {(ChunkState.DONE, 0, "")}


def test_a_chunk_behind_a_load_keeps_its_lease(rig: Rig, make_job: MakeJob, settings: Settings) -> None:
    """While a model is loaded, what waits for the cores makes no progress of its own, and is no hanging chunk."""
    settings.LEASE_SECONDS = 0
    make_job(rig.register("late"), chunks=1)
    chunk = chunk_lease(worker=rig.worker)
    assert chunk is not None and chunk.lease_token is not None
    rig.batch._in_hand.add(ChunkInHand(chunk, chunk.lease_token))
    for loading in (False, True):
        Chunk.objects.update(lease_expires_at=Now() - timedelta(hours=1))
        rig.host._loader.loading = loading
        rig.batch._keep()
        assert Chunk.objects.filter(lease_expires_at__gt=Now() - timedelta(minutes=1)).exists() == loading
    rig.host._loader.loading = False
    rig.batch._in_hand.clear()


def test_texts_that_are_gone_fail_only_their_chunk(rig: Rig, make_job: MakeJob) -> None:
    job = make_job(rig.register("late"), chunks=3)
    Document.objects.filter(position=64).delete()
    rig.batch.start()
    wait_for(lambda: ended(job))
    chunks = Chunk.objects.order_by("index")
    assert [chunk.state for chunk in chunks] == [ChunkState.DONE, ChunkState.FAILED, ChunkState.DONE]
    assert "needs 64 documents" in chunks[1].error


def test_a_chunk_that_crashed_before_runs_alone(rig: Rig, make_job: MakeJob) -> None:
    job = make_job(rig.register("late"), chunks=6)
    Chunk.objects.filter(index__in=(1, 2)).update(attempts=1, cause=ChunkCause.WORKER_CRASHED)
    rig.batch.start()
    wait_for(lambda: ended(job))
    running: set[str] = set()
    suspects = {str(chunk.pk) for chunk in Chunk.objects.filter(index__in=(1, 2))}
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkState.DONE}
    for move in Transition.objects.filter(entity="chunk").order_by("id"):
        if move.to_state == ChunkState.LEASED:
            released = Transition.objects.filter(
                entity="chunk", entity_id=move.entity_id, id__gt=move.pk, reason=ChunkCause.RELEASED
            ).exists()
            if released:
                continue  # leased, seen to be a suspect, and given back at once
            assert not running & suspects
            assert not (running and move.entity_id in suspects)
            running.add(move.entity_id)
        else:
            running.discard(move.entity_id)


def test_only_its_own_progress_extends_a_lease(rig: Rig, make_job: MakeJob, settings: Settings) -> None:
    """A chunk that hangs loses its lease, however well others get on in the same process."""
    settings.LEASE_SECONDS = 0
    make_job(rig.register("late"), chunks=2)
    for _ in range(2):
        chunk = chunk_lease(worker=rig.worker)
        assert chunk is not None and chunk.lease_token is not None
        rig.batch._in_hand.add(ChunkInHand(chunk, chunk.lease_token))
    hanging, working = sorted(rig.batch._in_hand, key=lambda hand: hand.chunk.index)
    Chunk.objects.update(lease_expires_at=Now() - timedelta(hours=1))
    working.progressed()
    rig.batch._keep()
    extended = Chunk.objects.filter(lease_expires_at__gt=Now() - timedelta(minutes=1))
    assert [chunk.index for chunk in extended] == [working.chunk.index]
    assert rig.batch.slowest() == (hanging.token, 0)
    rig.batch._in_hand.clear()


def test_a_chunk_in_the_engine_tells_its_progress(rig: Rig) -> None:
    rig.register("late")
    seen: list[int] = []
    texts = tuple(f"river {n}" for n in range(8))
    request = ScoringRequest("late", ("bees",), texts, progressed=lambda: seen.append(rig.engine.progress))
    rig.engine.submit(request).result()
    assert seen


def test_draining_gives_the_chunks_back_uncounted(rig: Rig, make_job: MakeJob) -> None:
    make_job(rig.register("late"), chunks=40)
    rig.batch.start()
    wait_for(rig.batch.in_hand)
    rig.batch.drain(20)
    assert not rig.batch.in_hand()
    assert not Chunk.objects.filter(state=ChunkState.LEASED).exists()
    assert Chunk.objects.filter(state=ChunkState.PENDING, attempts=0).exists()
