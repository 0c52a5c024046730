"""What one process takes on of a model, by the pace that it measured."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from assay.errors import AssayError
from scoring import backpressure
from scoring.backpressure import FEWEST, model_admit
from scoring.models import ScoringModel


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(backpressure, "time", clock)
    return clock


def answered(
    model: ScoringModel, clock: Clock, *, pairs: int, seconds: float, cold_seconds: float = 0.0, times: int = 1
) -> None:
    for _ in range(times):
        with model_admit(model=model, pairs=pairs, seconds=60) as admitted:
            clock.now += seconds
            admitted.answered(cold_seconds=cold_seconds)


def test_the_first_slow_answers_refuse_nobody(clock: Clock) -> None:
    """They waited for what is done once: libraries read, memory taken, kernels chosen."""
    model = ScoringModel(name="new")
    for _ in range(FEWEST - 1):
        answered(model, clock, pairs=1, seconds=20)
        with model_admit(model=model, pairs=1000, seconds=30), model_admit(model=model, pairs=1, seconds=1):
            pass
    answered(model, clock, pairs=1, seconds=20)
    with (
        model_admit(model=model, pairs=1000, seconds=30),
        pytest.raises(AssayError, match="at its present pace"),
        model_admit(model=model, pairs=1, seconds=1),
    ):
        pass


def test_a_queue_longer_than_the_deadline_is_refused(clock: Clock) -> None:
    model = ScoringModel(name="slow")
    answered(model, clock, pairs=10, seconds=5, times=FEWEST)  # half a second a pair
    with model_admit(model=model, pairs=20, seconds=60):
        with pytest.raises(AssayError) as refused, model_admit(model=model, pairs=1, seconds=4):
            pass
        assert (refused.value.status, refused.value.code, refused.value.retry_after) == (429, "overloaded", 6)
        with model_admit(model=model, pairs=1, seconds=11):
            pass
    with model_admit(model=model, pairs=1000, seconds=1):  # alone, it may try
        pass


def test_the_pace_is_that_of_warm_requests_and_of_the_newest_most(clock: Clock) -> None:
    model = ScoringModel(name="cold")
    answered(model, clock, pairs=10, seconds=61, cold_seconds=60, times=FEWEST)
    with model_admit(model=model, pairs=100, seconds=60), model_admit(model=model, pairs=1, seconds=10.5):
        pass
    for _ in range(30):
        answered(model, clock, pairs=10, seconds=0.1)
    with model_admit(model=model, pairs=100, seconds=60), model_admit(model=model, pairs=1, seconds=1.1):
        pass


def test_one_model_never_has_all_threads(clock: Clock, settings: Settings) -> None:
    settings.WEB_THREADS = 4
    hung, well = ScoringModel(name="hung"), ScoringModel(name="well")
    with (
        model_admit(model=hung, pairs=1, seconds=60),
        model_admit(model=hung, pairs=1, seconds=60),
        model_admit(model=hung, pairs=1, seconds=60),
    ):
        with (
            pytest.raises(AssayError, match="3 requests for it are in this process already"),
            model_admit(model=hung, pairs=1, seconds=60),
        ):
            pass
        with model_admit(model=well, pairs=1, seconds=60):
            pass
    with model_admit(model=hung, pairs=1, seconds=60):
        pass


def test_a_model_gets_no_more_at_once_than_its_administrator_allows(clock: Clock) -> None:
    model = ScoringModel(name="narrow", max_concurrency=2)
    assert backpressure.concurrency_in_force(model) == 2
    with model_admit(model=model, pairs=1, seconds=60), model_admit(model=model, pairs=1, seconds=60):
        with (
            pytest.raises(AssayError, match="2 requests for it") as refused,
            model_admit(model=model, pairs=1, seconds=60),
        ):
            pass
        assert refused.value.status == 429
    with model_admit(model=model, pairs=1, seconds=60):
        pass
    model.max_concurrency = 30_000
    assert backpressure.concurrency_in_force(model) == backpressure.concurrency_in_force(ScoringModel(name="usual"))
