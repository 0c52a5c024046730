"""A served model re-scores its self-test's pairs: past every cache, behind interactive work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.inside import body_of, task_of
from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, Priority, ScoringRequest

KINDS = {"bert": ModelKind.LATE_INTERACTION, "llama": ModelKind.GENERATIVE}


@pytest.fixture(params=KINDS)
def spec(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> ModelSpec:
    return ModelSpec("m", tiny_folders[request.param], KINDS[request.param], dtype="float32", check_order=False)


@pytest.fixture
def engine(spec: ModelSpec) -> Engine:
    engine = Engine(EngineConfig(threads=1))
    engine.load(spec)
    return engine


def test_a_sound_model_agrees_with_its_registration(engine: Engine, spec: ModelSpec) -> None:
    golden = engine.self_test("m").golden_scores
    report = engine.canary("m", golden)
    assert report.agrees and report.scores == pytest.approx(golden) and "finite" in report.detail
    engine.load(replace(spec, golden_scores=golden))
    assert engine.canary("m") == report
    off = engine.canary("m", (golden[0] + 1.0, *golden[1:]))
    assert not off.agrees and "at most 1" in off.detail
    engine.close()


def test_weights_that_changed_in_memory_are_seen_though_every_cache_is_warm(engine: Engine) -> None:
    """What a cache kept was right; the model that made it no longer is."""
    golden = engine.canary("m").scores
    assert engine.canary("m", golden).agrees
    for parameter in body_of(engine, "m").parameters():
        parameter.mul_(-1.5)
    assert not engine.canary("m", golden).agrees
    for parameter in body_of(engine, "m").parameters():
        parameter.fill_(float("nan"))
    report = engine.canary("m")
    assert not report.agrees and "0 of 6 scores are finite" in report.detail
    engine.close()


def test_it_runs_at_batch_priority_and_leaves_no_cache_entry(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Priority] = []
    task = task_of(engine, "m")
    run = task.run

    def watched(sequences: list[Any]) -> None:
        seen.extend(sequence.work.request.priority for sequence in sequences)
        run(sequences)

    monkeypatch.setattr(task, "run", watched)
    engine.canary("m")
    assert seen and set(seen) == {Priority.BATCH}
    statistics = engine.statistics()
    assert (statistics.document_cache.entries, statistics.query_cache.entries, statistics.prefix_cache.entries) == (
        0, 0, 0,
    )  # fmt: skip
    assert engine.submit(ScoringRequest("m", ("rain",), ("Rain fell all night.",))).result(30).raw_scores.size == 1
    engine.close()


def test_a_model_that_is_not_loaded_is_named(engine: Engine) -> None:
    with pytest.raises(EngineError, match="'other' is not loaded here"):
        engine.canary("other")
    engine.close()
