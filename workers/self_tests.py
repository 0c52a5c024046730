"""A registered model proves itself before anybody is served by it. The test is a load whose warm-up is the proof."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from scoring.models import Placement, ScoringModel
from scoring.models.scoring_model import ENCODERS
from scoring.services import registry
from scoring.services.chunks import worker_label
from scoring.services.placements import placement_want
from scoring.states import PlacementDemand
from workers.engine.model_types import ModelInfo, SelfTestReport
from workers.engine.self_test import EXAMPLES
from workers.engine.types import EncodingRequest
from workers.faults import ModelFault

if TYPE_CHECKING:
    from workers.engine.candidate import Candidate
    from workers.host import Host


def self_test_next(host: Host, mine: list[Placement]) -> bool:
    """Test one model that waits for it, if any. One that passed stays loaded, one that did not is unloaded.

    One that finds no room here, beside ``mine``, waits for another worker, or until there is.
    """
    waiting = list(registry.self_tests_waiting())
    fitting = [model.pk for model in waiting if host.has_room(model, mine)]
    model = registry.self_test_claim(worker=host.worker, among=fitting) if fitting else None
    if model is None:
        return False
    found: dict[str, Any] = {"revision": model.revision, "facts": {}}
    reports: list[SelfTestReport] = []
    seconds: list[float] = []

    def prove(candidate: Candidate) -> None:
        found.update(revision=candidate.info.revision, facts=model_facts(candidate.info))
        started = time.perf_counter()
        reports.append(candidate.self_test())
        seconds.append(time.perf_counter() - started)
        if not reports[0].passed:
            raise ModelFault("; ".join(check.detail for check in reports[0].checks if not check.passed))
        if model is not None and model.kind in ENCODERS and not model.is_remote:
            found["facts"]["encoded_bytes"] = encoded_bytes(candidate)

    placement = placement_want(
        model=model, worker=host.worker, demand=PlacementDemand.PERSON, actor=worker_label(host.worker)
    )
    failure = host.try_out(placement, mine, prove=prove)
    if failure is None:
        registry.self_test_give_back(model=model, worker=host.worker, reason="no room")
        return False
    report = report_json(reports[0]) | {"seconds": seconds[0]} if seconds else failed_report("load", failure)
    registry.self_test_finish(model=model, worker=host.worker, passed=not failure, report=report, **found)
    return True


def golden_scores(model: ScoringModel, info: ModelInfo) -> tuple[float, ...]:
    """What the self-test's pairs scored; nothing where it ran in another dtype or on another sort of device."""
    alike = (model.facts.get("dtype"), str(model.facts.get("device")).split(":")[0])
    scores = (model.self_test_report or {}).get("golden_scores") or []
    if alike != (info.dtype, info.device.split(":")[0]) or None in scores:
        return ()
    return tuple(scores)


def model_facts(info: ModelInfo) -> dict[str, Any]:
    """What people want to know of a loaded model, as JSON."""
    return {
        "architecture": info.architecture,
        "execution": info.execution,
        "dtype": info.dtype,
        "device": info.device,
        "max_length": info.max_length or None,  # of a remote model nobody knows
        "scale": info.scale,
        "weight_bytes": info.weight_bytes,
        "load_seconds": round(info.load_seconds, 3),
        "maxsim_backend": info.maxsim_backend,
        "shorter_dimensions": info.shorter_dimensions,
    }


def encoded_bytes(candidate: Candidate) -> dict[str, float]:
    """What an encoding takes, by the self-test's texts: of a document and of a token."""
    texts = tuple(text for _, *texts in EXAMPLES for text in texts)
    done = candidate.encode(EncodingRequest(candidate.spec.name, texts))
    return {"document": done.bytes / max(done.encoded, 1), "token": done.bytes / max(done.prompt_tokens, 1)}


def report_json(report: SelfTestReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "checks": [{"name": check.name, "passed": check.passed, "detail": check.detail} for check in report.checks],
        "golden_scores": [score if math.isfinite(score) else None for score in report.golden_scores],
        "pairs": example_pairs() if len(report.golden_scores) == 2 * len(EXAMPLES) else [],
    }


def example_pairs() -> list[dict[str, str]]:
    """In the order of the golden scores."""
    return [{"query": query, "document": text} for query, *texts in EXAMPLES for text in texts]


def failed_report(step: str, sentence: str) -> dict[str, Any]:
    """The report of a test that did not get as far as a first check."""
    return {"passed": False, "checks": [{"name": step, "passed": False, "detail": sentence}], "golden_scores": []}
