"""What a comparison's statistics cost, and how often they see a difference where there is none.

    python benchmarks/significance.py

Values are like nDCG@10: shares, correlated between two systems. The peer of the randomisation test is scipy's own
``permutation_test``, which shuffles each resample by itself. The last line is JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from scoring.statistics import RESAMPLES, bootstrap_interval, randomisation_p, randomised_tukey, t_interval, t_p

ROUNDS = 5
TRIALS = 2_000


def systems(queries: int, seed: int, gain: float = 0.0) -> tuple[Any, Any]:
    """Two systems' values [queries], the second better by ``gain`` on the average."""
    rng = np.random.default_rng(seed)
    hardness = rng.beta(1, 2, queries)
    return tuple(np.clip(hardness + rng.normal(step, 0.12, queries), 0, 1) for step in (0.0, gain))  # type: ignore[return-value]


def timed(run: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    """Least and median milliseconds."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        found.append(1000 * (time.perf_counter() - begun))
    return min(found), statistics.median(found)


def t_test(changes: Any) -> object:
    return t_p(changes), t_interval(changes)


def peer(changes: Any) -> object:
    return stats.permutation_test(
        (changes,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", n_resamples=RESAMPLES
    )


print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}, {RESAMPLES:,} resamples, {ROUNDS} rounds")
result: dict[str, Any] = {}
for queries in (225, 10_000):
    baseline, other = systems(queries, seed=1, gain=0.01)
    changes = other - baseline
    works = {
        "t test and interval": partial(t_test, changes),
        "randomisation test": partial(randomisation_p, changes),
        "randomised Tukey of 4": partial(randomised_tukey, np.array([*systems(queries, 1), *systems(queries, 2)])),
        "bootstrap interval": partial(bootstrap_interval, baseline),
    }
    times = {name: timed(run) for name, run in works.items()}
    for name, (least, middle) in times.items():
        print(f"{queries:>6,} queries: {name:<21} {least:9.2f} ms, median {middle:9.2f}")
    result[str(queries)] = {name: round(middle, 2) for name, (_, middle) in times.items()}
ratio = timed(lambda: peer(changes[:225]), 3)[1] / timed(lambda: randomisation_p(changes[:225]))[1]
print(f"   225 queries: scipy's permutation_test takes {ratio:.1f} times as long as the randomisation test")
false = sum(t_p(np.subtract(*systems(50, seed))) <= 0.05 for seed in range(TRIALS)) / TRIALS
print(f"    50 queries: two equal systems differ by the t test in {false:.1%} of {TRIALS:,} trials; 5 % is right")
print(json.dumps({**result, "peer_ratio": round(ratio, 1), "false_alarms": false}))
