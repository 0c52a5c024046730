"""Reads about saved evaluations: whose they are, what they hold by query, whether something newer exists."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import numpy as np
from django.db.models import QuerySet

from assay.api.principal import Principal
from scoring.models import Evaluation, JudgementSet, Stage
from scoring.selectors.evaluation import StageMeasures, is_ranked
from scoring.selectors.sets import newest_version

COMPUTATION: Final = 1  # grows when the same rankings and judgements would give other numbers
LIBRARIES: Final = ("assay", "ir-measures", "pytrec_eval-terrier")
SENSITIVE: Final = 0.005  # ties that move a mean by more are said


@cache
def code_versions() -> dict[str, str]:
    """Of everything that computes, so that a number can be computed again."""
    return {"computation": str(COMPUTATION), **{name: _version(name) for name in LIBRARIES}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source folder
        return "not installed"


def evaluation_key(stage: Stage, judgements: JudgementSet, *, measures: Sequence[str], only_relevant: bool) -> str:
    """Equal for what gives equal numbers. ``measures`` are complete names in order."""
    parts = (stage.pk, str(stage.finished_at), str(judgements.pk), list(measures), only_relevant, code_versions())
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class EvaluationArrays:
    """What an evaluation holds by query: n queries in the means, M measures, C cut-offs.

    ``positions`` int32 [n] ascending; ``values`` float64 [M, n], NaN: undefined; ``cutoffs`` int32 [C] and ``judged``
    float64 [C, n]; ``relevant``, ``kept``, ``unjudged_at_top`` int32 [n]. Left out, by position: ``unjudged``,
    ``without_relevant`` (only where these are left out).
    """

    positions: Any
    values: Any
    cutoffs: Any
    judged: Any
    relevant: Any
    kept: Any
    unjudged_at_top: Any
    unjudged: Any
    without_relevant: Any

    @classmethod
    def of(cls, found: StageMeasures) -> EvaluationArrays:
        counted = {"cutoffs": found.cutoffs, "unjudged": found.unjudged, "without_relevant": found.without_relevant}
        whole = {name: np.array(values, np.int32) for name, values in counted.items()}
        same = ("positions", "values", "judged", "relevant", "kept", "unjudged_at_top")
        return cls(**whole, **{name: getattr(found, name) for name in same})

    def packed(self) -> bytes:
        file = io.BytesIO()
        np.savez_compressed(file, **asdict(self))
        return file.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> EvaluationArrays:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return cls(**{name: file[name] for name in file.files})

    def lists(self) -> dict[str, Any]:
        """Positions of the queries that a page or a list is asked for by name."""
        return {
            "evaluated": self.positions,
            "unjudged": self.unjudged,
            "without_results": self.positions[self.kept == 0],
            "without_relevant": np.union1d(self.positions[self.relevant == 0], self.without_relevant),
        }

    def judged_at(self, cutoff: int) -> Any:
        """float64 [n]"""
        return self.judged[self.cutoffs.tolist().index(cutoff)]


def evaluations_of(principal: Principal) -> QuerySet[Evaluation]:
    """The team's, without what they hold by query."""
    rows = Evaluation.objects.for_team(principal.team).select_related(
        "judgement_set", "created_by", "stage__model", "stage__run_set", "stage__source",
        "stage__job__document_set", "stage__job__query_set",
    )  # fmt: skip
    return rows.defer("arrays", "stage__job__statistics")


def evaluation_arrays(evaluation: Evaluation) -> EvaluationArrays:
    return EvaluationArrays.unpack(bytes(evaluation.arrays))


def values_kept(stage: Stage, judgements: JudgementSet, *, measures: Sequence[str]) -> tuple[Any, Any] | None:
    """What evaluations of the stage hold already of ``measures``, complete names: positions int32 [n] and values
    float64 [M, n]; None where a measure is in none of them. An evaluation counts whose key would be the same today: of
    this ranking, these judgements and this code."""
    found: dict[str, Any] = {}
    positions = None
    rows = Evaluation.objects.filter(stage=stage, judgement_set=judgements, only_relevant=False)
    for evaluation in rows.defer("figures", "pinned"):
        if evaluation.key != evaluation_key(stage, judgements, measures=evaluation.measures, only_relevant=False):
            continue
        arrays = evaluation_arrays(evaluation)
        positions = arrays.positions
        coverage = {f"Judged@{cutoff}": own for cutoff, own in zip(arrays.cutoffs, arrays.judged, strict=True)}
        found |= coverage | dict(zip(evaluation.measures, arrays.values, strict=True))
        if found.keys() >= set(measures):
            return positions, np.array([found[name] for name in measures])
    return None


@dataclass(frozen=True, slots=True)
class Stale:
    """Why an evaluation no longer tells the present; ``newer`` is the version of the judgements to measure with."""

    reason: str
    newer: JudgementSet | None


def evaluation_stale(evaluation: Evaluation) -> Stale | None:
    judgements, stage = evaluation.judgement_set, evaluation.stage
    if judgements is None:
        return Stale("The judgement set has been deleted; the numbers stay.", None)
    newest = newest_version(judgements)
    newer = newest if newest.pk != judgements.pk else None
    if newer is not None:
        return Stale(f"Computed with version {judgements.version}; version {newer.version} exists.", newer)
    if not is_ranked(stage):
        return Stale("The job is being ranked anew.", None)
    if stage.finished_at != evaluation.ranked_at:
        return Stale("The job has been ranked anew since.", judgements)
    if evaluation.pinned["code"] != code_versions():
        return Stale("Computed by another version of the software.", judgements)
    return None


def number_or_none(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
