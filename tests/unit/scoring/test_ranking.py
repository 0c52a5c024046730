from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scoring.ranking import decimals, ranked, strictly_decreasing
from scoring.services.chunk_plan import BlockSize, blocks

VALUES = st.sampled_from([-1.5, 0.0, 0.25, 0.25, 7.0, float("nan")])
SCORES = hnp.arrays(np.float32, st.integers(1, 60), elements=VALUES)


@given(SCORES)
def test_order_is_scored_first_then_raw_score_then_input_order(raw: np.ndarray) -> None:
    def key(i: int) -> tuple[bool, float, int]:
        unscored = bool(np.isnan(raw[i]))
        return unscored, 0.0 if unscored else -float(raw[i]), i

    assert ranked(raw).tolist() == sorted(range(len(raw)), key=key)


@given(SCORES)
def test_decreasing_scores_keep_the_order_in_any_tool(raw: np.ndarray) -> None:
    scores = np.nan_to_num(raw[ranked(raw)], nan=-9.0)
    lowered = strictly_decreasing(scores)
    assert bool(np.all(np.diff(lowered) < 0)) and lowered.dtype == np.float32
    assert bool(np.all(lowered <= scores)) and lowered[0] == scores[0]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 9))
def test_every_pair_is_in_exactly_one_block(counts: list[int], query_size: int, document_size: int) -> None:
    seen = np.zeros((len(counts), 41), dtype=int)
    for block in blocks(counts=np.array(counts), size=BlockSize(query_size, document_size)):
        rows = slice(block.query_start, block.query_start + block.query_count)
        columns = slice(block.document_start, block.document_start + block.document_count)
        seen[rows, columns] += 1
    assert seen.max() <= 1
    assert all(bool((seen[query, :count] == 1).all()) for query, count in enumerate(counts))


@given(hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32, allow_infinity=False)))
def test_a_score_is_shown_by_the_shortest_decimal_that_is_it(scores: np.ndarray) -> None:
    shown = decimals(scores)
    for score, decimal in zip(scores, shown, strict=True):
        shortest = float(np.format_float_positional(score, unique=True))
        assert decimal is None if np.isnan(score) else (decimal, np.float32(decimal)) == (shortest, score)
