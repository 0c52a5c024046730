"""What a model must show before it is served: the right order, finite numbers, and scores that do not depend on company
or order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from workers.engine.model_types import ModelKind, ModelSpec, SelfTestCheck, SelfTestReport
from workers.engine.types import (
    Pairing,
    PooledText,
    PoolingOptions,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    ScoringOutput,
    ScoringRequest,
)

Scores = npt.NDArray[np.float32]

# (query, a passage that answers it, one that has nothing to do with it)
EXAMPLES = (
    (
        "How do bees make honey?",
        "Honey bees gather nectar from flowers and turn it into honey inside the hive by drying it with their wings.",
        "The central bank raised its interest rate by a quarter of a percent on Thursday.",
    ),
    (
        "What is the capital of France?",
        "Paris is the capital and the largest city of France.",
        "To change a bicycle tyre, first release the brake and take the wheel out of the frame.",
    ),
    (
        "symptoms of dehydration",
        "Signs of dehydration are thirst, a dry mouth, dark urine, dizziness and headache.",
        "The violin has four strings, which are tuned in fifths.",
    ),
)
# Allowed difference per unit of score between two runs of the same pair in different batches.
_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "int8": 5e-2, "remote": 1e-2}
# The same between two machines or versions of the libraries.
_GOLDEN_TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2, "int8": 5e-2, "remote": 2e-2}
_AGREEING = 0.9  # least share of comparisons between two passages that int8 must decide as float32 does

_NOT_OF_LISTS = tuple(
    SelfTestCheck(name, True, f"Not checked: a listwise model reads a query's passages together, so {what} scores.")
    for name, what in (("alone", "their company changes"), ("order_invariance", "their order changes"))
)


Score = Callable[[ScoringRequest], ScoringOutput]


def run_self_test(score: Score, spec: ModelSpec, dtype: str) -> SelfTestReport:
    """``score`` must compute afresh: a cached embedding would make every comparison agree."""
    queries, documents = _pairs()
    together = example_scores(score, spec.name)
    tolerance = _TOLERANCE[dtype] * max(1.0, float(np.abs(together).max()))
    if spec.kind is ModelKind.LISTWISE:
        again = score(ScoringRequest(spec.name, queries, documents, Pairing.PAIRWISE)).raw_scores
        return _report(
            together, spec, dtype, (_same("repeat", together, again, tolerance, "once more"), *_NOT_OF_LISTS)
        )
    alone = np.array(
        [score(ScoringRequest(spec.name, (q,), (d,))).raw_scores[0] for q, d in zip(queries, documents, strict=True)]
    )
    reverse = score(ScoringRequest(spec.name, queries[::-1], documents[::-1], Pairing.PAIRWISE)).raw_scores[::-1]
    checks = (
        _same("alone", together, alone, tolerance, "scored alone and with the others"),
        _same("order_invariance", together, reverse, tolerance, "in reverse order"),
    )
    return _report(together, spec, dtype, checks)


def run_pooling_self_test(
    pool: Callable[[PoolingRequest], PoolingOutput], spec: ModelSpec, dtype: str, task: PoolingTask, tail: str
) -> SelfTestReport:
    """For a classifier, which scores no pairs: its logits for known texts with ``tail``, afresh each time."""
    texts = tuple(text + tail for example in EXAMPLES for text in example)
    options = PoolingOptions(use_activation=False)
    together = _example_logits(pool, spec.name, task, tail)
    alone = [_logits(pool(PoolingRequest(spec.name, (text,), task, options=options)).data[0]) for text in texts]
    reverse = [_logits(text) for text in pool(PoolingRequest(spec.name, texts[::-1], task, options=options)).data]
    flat = np.concatenate(together)
    tolerance = _TOLERANCE[dtype] * max(1.0, float(np.abs(flat).max(initial=0.0)))
    checks: tuple[SelfTestCheck, ...] = (
        finite_check(flat),
        SelfTestCheck("order", True, "Not checked: a classifier scores no passage for a query."),
        _same("alone", flat, np.concatenate(alone), tolerance, "alone and with the others", "texts"),
        _same("order_invariance", flat, np.concatenate(reverse[::-1]), tolerance, "in reverse order", "texts"),
    )
    best = np.array([logits.max(initial=-np.inf) for logits in together], dtype=np.float32)
    checks += _golden_checks(best, spec, dtype)
    return SelfTestReport(all(check.passed for check in checks), checks, tuple(float(value) for value in best))


def example_scores(score: Callable[[ScoringRequest], ScoringOutput], name: str) -> Scores:
    """What the golden scores are of: the pairs, all at once."""
    return score(ScoringRequest(name, *_pairs(), Pairing.PAIRWISE)).raw_scores


def example_best_logits(
    pool: Callable[[PoolingRequest], PoolingOutput], name: str, task: PoolingTask, tail: str
) -> Scores:
    """And for what scores no pairs."""
    found = [logits.max(initial=-np.inf) for logits in _example_logits(pool, name, task, tail)]
    return np.array(found, dtype=np.float32)


def golden_check(scores: Scores, golden: tuple[float, ...], dtype: str) -> SelfTestCheck:
    if len(golden) != len(scores):
        return SelfTestCheck("golden", False, f"There are {len(golden)} golden scores for {len(scores)} examples.")
    before = np.array(golden, dtype=np.float32)
    tolerance = _GOLDEN_TOLERANCE[dtype] * max(1.0, float(np.abs(before).max()))
    return _same("golden", scores, before, tolerance, "now and at registration", "examples")


def _golden_checks(scores: Scores, spec: ModelSpec, dtype: str) -> tuple[SelfTestCheck, ...]:
    if not spec.golden_scores:
        return ()
    # ``auto`` may have meant another dtype where the golden scores were made.
    return (golden_check(scores, spec.golden_scores, "bfloat16" if spec.dtype == "auto" else dtype),)


def _pairs() -> tuple[tuple[str, ...], tuple[str, ...]]:
    queries = tuple(query for query, _, _ in EXAMPLES for _ in range(2))
    return queries, tuple(text for _, relevant, irrelevant in EXAMPLES for text in (relevant, irrelevant))


def _example_logits(
    pool: Callable[[PoolingRequest], PoolingOutput], name: str, task: PoolingTask, tail: str
) -> list[Scores]:
    texts = tuple(text + tail for example in EXAMPLES for text in example)
    options = PoolingOptions(use_activation=False)
    return [_logits(text) for text in pool(PoolingRequest(name, texts, task, options=options)).data]


def _logits(text: PooledText) -> Scores:
    found = text.classes if text.classes is not None else text.token_classes
    return np.full(1, np.nan, dtype=np.float32) if found is None else found.ravel()


def compare_rankings(report: SelfTestReport, score: Score, in_float32: Score, spec: ModelSpec) -> SelfTestReport:
    """The report with one check more: whether int8 ranks every query's six passages as the model in float32 does."""
    queries, documents = tuple(q for q, _, _ in EXAMPLES), tuple(text for _, *texts in EXAMPLES for text in texts)
    request = ScoringRequest(spec.name, queries, documents)
    narrow, wide = (each(request).raw_scores.reshape(len(queries), -1) for each in (score, in_float32))
    check = _ranking(narrow, wide, must_agree=spec.check_order)
    return SelfTestReport(report.passed and check.passed, (*report.checks, check), report.golden_scores)


def _report(scores: Scores, spec: ModelSpec, dtype: str, comparisons: tuple[SelfTestCheck, ...]) -> SelfTestReport:
    order = (
        _order(scores)
        if spec.check_order
        else SelfTestCheck("order", True, "Not checked: the weights are registered as random.")
    )
    checks = (finite_check(scores), order, *comparisons, *_golden_checks(scores, spec, dtype))
    return SelfTestReport(all(check.passed for check in checks), checks, tuple(float(value) for value in scores))


def finite_check(scores: Scores) -> SelfTestCheck:
    count = int(np.isfinite(scores).sum())
    return SelfTestCheck("finite", count == len(scores), f"{count} of {len(scores)} scores are finite numbers.")


def _order(scores: Scores) -> SelfTestCheck:
    relevant, irrelevant = scores[::2], scores[1::2]
    right = int((relevant > irrelevant).sum())
    margins = ", ".join(f"{margin:+.4g}" for margin in relevant - irrelevant)
    return SelfTestCheck(
        "order",
        right == len(relevant),
        f"{right} of {len(relevant)} relevant passages score above the irrelevant one; margins {margins}.",
    )


def _ranking(narrow: npt.NDArray[np.float32], wide: npt.NDArray[np.float32], *, must_agree: bool) -> SelfTestCheck:
    """``[queries, passages]`` twice: which of two passages is better, for every two of a query."""
    first, second = np.triu_indices(wide.shape[1], k=1)
    ours, theirs = (np.sign(scores[:, first] - scores[:, second]) for scores in (narrow, wide))
    agreeing, best = int((ours == theirs).sum()), int((narrow.argmax(axis=1) == wide.argmax(axis=1)).sum())
    kept = best == len(wide) and agreeing >= _AGREEING * ours.size
    return SelfTestCheck(
        "int8_ranking",
        kept or not must_agree,
        f"Against float32 the best passage is the same for {best} of {len(wide)} queries and {agreeing} of {ours.size} "
        f"comparisons agree; scores differ by at most {float(np.abs(narrow - wide).max()):.2g}.",
    )


def _same(
    name: str,
    one: Scores,
    other: Scores,
    tolerance: float,
    how: str,
    what: str = "pairs",
) -> SelfTestCheck:
    difference = float(np.abs(one - other).max())
    return SelfTestCheck(
        name,
        bool(difference <= tolerance),
        f"The same {what} {how} differ by at most {difference:.2g}; allowed is {tolerance:.2g}.",
    )
