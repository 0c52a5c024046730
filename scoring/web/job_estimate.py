"""What a job would take, from the form as far as it is filled in."""

from __future__ import annotations

from dataclasses import dataclass

from assay.api.principal import Principal
from scoring.models import StageMethod
from scoring.selectors.job_limits import JobUsage, job_usage
from scoring.selectors.pace import model_paces
from scoring.selectors.workers import workers_alive
from scoring.services.stage_plan import StagePlan, candidate_limits
from scoring.web.job_form import JobForms, cleaned


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """``seconds`` of computing, by the measured pace; None where the model has scored nothing here yet. What finds
    documents without a model takes next to nothing."""

    name: str
    pairs: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """At most this much. ``workers`` are those that are up."""

    queries: int
    documents: int
    stages: list[StageEstimate]
    workers: int
    usage: JobUsage

    @property
    def pairs(self) -> int:
        return sum(stage.pairs for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """Of computing, of the stages whose pace is known; None if that is none."""
        known = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(known) if any(known) else None

    @property
    def unmeasured(self) -> list[str]:
        return [stage.name for stage in self.stages if stage.seconds is None]

    @property
    def seconds_with_all(self) -> float | None:
        """Until the end, if every worker that is up takes part."""
        return self.seconds / self.workers if self.seconds and self.workers > 1 else None

    @property
    def open_pairs(self) -> int:
        """The person's, with this job."""
        return self.usage.open_pairs + self.pairs

    @property
    def too_many(self) -> bool:
        return self.open_pairs > self.usage.pairs_limit


def job_estimate(forms: JobForms, principal: Principal) -> JobEstimate | None:
    """Of bound forms; None until both sets are chosen."""
    forms.is_valid()
    fields = cleaned(forms.job)
    documents, queries = fields.get("document_set"), fields.get("query_set")
    if documents is None or queries is None:
        return None
    plans = forms.plans()
    limits = candidate_limits(plans, document_count=documents.counts["kept"])
    count = queries.counts["kept"]
    paces = model_paces({plan.model.name for plan in plans if plan.model})
    return JobEstimate(
        count,
        documents.counts["kept"],
        [_stage(plan, count * limit, paces) for plan, limit in zip(plans, limits, strict=True)],
        workers_alive().count(),
        job_usage(team=principal.team, user=principal.user),
    )


def _stage(plan: StagePlan, pairs: int, paces: dict[str, float]) -> StageEstimate:
    if plan.method != StageMethod.MODEL:
        return StageEstimate(str(plan), pairs, 0.0)
    if plan.model is None:
        return StageEstimate("a model", pairs, None)
    pace = paces.get(plan.model.name)
    return StageEstimate(plan.model.name, pairs, pairs / pace if pace else None)
