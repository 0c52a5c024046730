"""Cut-offs that the team was advised for the scores of its models. ``jobs.thresholds`` measures them."""

from __future__ import annotations

from typing import Any

from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.judging_shapes import Advice


class ThresholdAdvice(Resource[S]):
    @operation
    def create(
        self, job_id: str, judgement_set: str, score: float, *, stage: int | None = None,
        relevant_from: int | None = None, per_query_token: bool = False, note: str | None = None,
    ) -> Flow[Advice]:  # fmt: skip
        """Advise ``score`` as the cut-off of the model of a job's stage. What it does is measured and kept with it as
        evidence; nothing applies it."""
        optional = given(stage=stage, relevant_from=relevant_from, per_query_token=per_query_token or None, note=note)
        body = {"job": job_id, "judgement_set": judgement_set, "score": score, **optional}
        return self._ask("POST", resource_path("threshold-advice"), json=body, repeatable=False)

    @operation
    def get(self, advice_id: str) -> Flow[Advice]:
        return self._ask("GET", resource_path("threshold-advice", advice_id))

    @operation
    def delete(self, advice_id: str) -> Flow[None]:
        """Withdraw it; the one before it is in force again."""
        return self._ask("DELETE", resource_path("threshold-advice", advice_id))

    @listing
    def list(self, **filters: Any) -> Pages[Advice]:
        """Newest first, and the newest of a model is in force; ``filters`` such as ``model``."""
        return Pages(Request("GET", resource_path("threshold-advice"), params=filters))
