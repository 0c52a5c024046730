"""A model that is loaded and not yet served: whoever loads it may ask it for scores and refuse it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from workers.engine.errors import EngineError
from workers.engine.loading.checkpoint import INT8
from workers.engine.model_types import CanaryReport, ModelInfo, ModelSpec, SelfTestCheck, SelfTestReport
from workers.engine.self_test import (
    Scores,
    compare_rankings,
    example_best_logits,
    example_scores,
    finite_check,
    golden_check,
    run_pooling_self_test,
    run_self_test,
)
from workers.engine.task_runner import TaskRunner
from workers.engine.types import (
    EncodingOutput,
    EncodingRequest,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    ScoringOutput,
    ScoringRequest,
)

if TYPE_CHECKING:
    from workers.engine.engine import Engine


class SelfTestFailed(EngineError):
    """With the report that says which checks failed."""

    def __init__(self, report: SelfTestReport) -> None:
        super().__init__("self_test_failed", "; ".join(check.detail for check in report.checks if not check.passed))
        self.report = report


@dataclass(frozen=True, slots=True)
class LoadedModel:
    spec: ModelSpec
    task: TaskRunner

    @property
    def info(self) -> ModelInfo:
        return self.task.info


class Scorer(Protocol):
    """What a candidate must know of whoever computes for it."""

    @property
    def info(self) -> ModelInfo: ...
    @property
    def scores_pairs(self) -> bool: ...
    @property
    def tasks(self) -> Collection[PoolingTask]: ...
    @property
    def sample_tail(self) -> str: ...


class Candidate:
    """Answers to this very model, past all caches. Usable until the proof ends: whoever keeps it, or an error's
    traceback, keeps no weights alive."""

    def __init__(
        self,
        spec: ModelSpec,
        task: Scorer,
        submit: Callable[[Any], Future[Any]],
        another_engine: Callable[[], Engine],
    ) -> None:
        self.spec = spec
        self._another_engine = another_engine
        self.info: ModelInfo = task.info
        self._scores_pairs = task.scores_pairs
        self._sample = (next(iter(task.tasks), None), task.sample_tail)
        self._submit: Callable[[Any], Future[Any]] | None = submit

    def score(self, request: ScoringRequest) -> ScoringOutput:
        output: ScoringOutput = self._ask(request)
        return output

    def pool(self, request: PoolingRequest) -> PoolingOutput:
        output: PoolingOutput = self._ask(request)
        return output

    def encode(self, request: EncodingRequest) -> EncodingOutput:
        output: EncodingOutput = self._ask(request)
        return output

    def self_test(self) -> SelfTestReport:
        task, tail = self._sample
        if self._scores_pairs or task is None:
            report = run_self_test(self.score, self.spec, self.info.dtype)
            return report if self.info.dtype != INT8 else self._beside_float32(report)
        return run_pooling_self_test(self.pool, self.spec, self.info.dtype, task, tail)

    def _beside_float32(self, report: SelfTestReport) -> SelfTestReport:
        with closing(self._another_engine()) as other:  # the same weights, for as long as this takes
            other.load(replace(self.spec, dtype="float32"))
            return compare_rankings(report, self.score, lambda request: other.submit(request).result(), self.spec)

    def warm_up(self, golden: tuple[float, ...] = ()) -> SelfTestCheck | None:
        """Run the self-test's examples once, the first run being slow; beside their ``golden`` scores, if there are
        any of these files with this dtype."""
        scores = self._example_scores()
        return golden_check(scores, golden, self.info.dtype) if golden else None

    def canary(self, golden: tuple[float, ...] = ()) -> CanaryReport:
        """The same of a model that serves; without ``golden`` scores it must only give finite ones."""
        scores = self._example_scores()
        checks = [finite_check(scores), *([golden_check(scores, golden, self.info.dtype)] if golden else ())]
        return CanaryReport(
            agrees=all(check.passed for check in checks),
            scores=tuple(float(score) for score in scores),
            detail=" ".join(check.detail for check in checks),
        )

    def _example_scores(self) -> Scores:
        task, tail = self._sample
        if self._scores_pairs or task is None:
            return example_scores(self.score, self.spec.name)
        return example_best_logits(self.pool, self.spec.name, task, tail)

    def dismiss(self) -> None:
        self._submit = None

    def _ask(self, request: ScoringRequest | PoolingRequest | EncodingRequest) -> Any:
        if self._submit is None:
            raise EngineError("model_not_loaded", f"'{self.spec.name}' is no candidate any more. Ask the engine.")
        return self._submit(request).result()


Proof = Callable[[Candidate], object]  # raises what the load is to raise


def must_pass_self_test(candidate: Candidate) -> None:
    report = candidate.self_test()
    if not report.passed:
        raise SelfTestFailed(report)
