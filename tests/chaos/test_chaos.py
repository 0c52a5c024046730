"""Whatever dies in mid-job: it ends completed, its scores are an undisturbed job's to the last bit, nothing is left."""

from __future__ import annotations

import random
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from tests.chaos.conftest import Submit
from tests.chaos.house import DISTURBANCES, House, ended, nothing_is_left, scores
from tests.integration.rig import wait_for

pytestmark = pytest.mark.stack

# In one job after another, so that the short suite stays short; `make chaos` does each alone, then any at random.
SHORT: Final = (
    ("kill_a_worker", "flush_redis", "kill_a_worker_that_stores", "wake_a_hundred_times"),
    ("restart_postgres", "take_redis_away", "freeze_a_worker"),
    ("crash_postgres", "stop_the_reconciler", "fill_redis", "kill_the_web"),
    ("pause_and_resume", "cancel_and_retry", "kill_both_workers"),
)
RANDOM_SECONDS: Final = 420.0


def disturbed(house: House, job: dict[str, Any], names: tuple[str, ...]) -> None:
    """Each in the middle of the job: after some chunk more is done than before."""
    for name in names:
        before = done(house, job)
        wait_for(lambda: done(house, job) > before or is_over(house, job), seconds=120, what="progress")  # noqa: B023 - called at once
        DISTURBANCES[name](house)


def done(house: House, job: dict[str, Any]) -> int:
    counted = house.rows("SELECT count(*) FROM scoring_chunk WHERE job_id = %s AND state = 'done'", job["id"])
    return int(counted[0][0])


def is_over(house: House, job: dict[str, Any]) -> bool:
    return house.rows("SELECT finished_at IS NOT NULL FROM scoring_job WHERE id = %s", job["id"]) == [(True,)]


def is_as_if_nothing_had_happened(house: House, job: dict[str, Any], undisturbed: npt.NDArray[np.float32]) -> None:
    end = ended(house, job)
    assert (end["state"], end["failure"]) == ("completed", "")
    np.testing.assert_array_equal(scores(house, job), undisturbed)
    nothing_is_left(house, job)


@pytest.mark.parametrize("names", SHORT, ids=["-".join(names) for names in SHORT])
def test_a_job_survives(
    house: House, submit: Submit, undisturbed: npt.NDArray[np.float32], names: tuple[str, ...]
) -> None:
    job = submit()
    disturbed(house, job, names)
    is_as_if_nothing_had_happened(house, job, undisturbed)


@pytest.mark.chaos
@pytest.mark.parametrize("name", DISTURBANCES)
def test_each_alone(house: House, submit: Submit, undisturbed: npt.NDArray[np.float32], name: str) -> None:
    job = submit()
    disturbed(house, job, (name,))
    is_as_if_nothing_had_happened(house, job, undisturbed)


@pytest.mark.chaos
def test_minutes_of_anything(house: House, submit: Submit, undisturbed: npt.NDArray[np.float32]) -> None:
    seed = time.time_ns()
    chosen = random.Random(seed)
    give_up = time.monotonic() + RANDOM_SECONDS
    while time.monotonic() < give_up:
        job = submit()
        names = tuple(chosen.choices(list(DISTURBANCES), k=4))
        try:
            disturbed(house, job, names)
            is_as_if_nothing_had_happened(house, job, undisturbed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {names}: {error}") from error
