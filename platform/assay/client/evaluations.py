"""Rankings measured against judgements: make, read, compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.shapes import Leaderboard, QueryValues, SavedEvaluation


class Evaluations(Resource[S]):
    @operation
    def create(
        self, job_id: str, judgement_set: str, *, measures: Sequence[str] | None = None, stage: int | None = None,
        only_relevant: bool = False,
    ) -> Flow[SavedEvaluation]:  # fmt: skip
        """Measure a stage of a job, the last one unless ``stage`` is given, and keep it; or find it, if it was measured
        before. ``measures`` in the names of ir-measures, such as nDCG@10. ``only_relevant`` leaves out queries without
        a relevant document."""
        optional = given(measures=list(measures) if measures is not None else None, stage=stage)
        body = {"job": job_id, "judgement_set": judgement_set, "only_relevant": only_relevant, **optional}
        return self._ask("POST", resource_path("evaluations"), json=body)

    @operation
    def get(self, evaluation_id: str) -> Flow[SavedEvaluation]:
        return self._ask("GET", resource_path("evaluations", evaluation_id))

    @operation
    def export(self, evaluation_id: str, target: Path | str | BinaryIO, *, format: str = "wide") -> Flow[None]:
        """Write what was measured to a file: ``wide`` or ``long`` (CSV), ``markdown``, ``latex``."""
        return self._download(resource_path("evaluations", evaluation_id, "export"), target, {"format": format})

    @operation
    def delete(self, evaluation_id: str) -> Flow[None]:
        return self._ask("DELETE", resource_path("evaluations", evaluation_id))

    @operation
    def leaderboard(
        self, query_set: str, judgement_set: str, *, measure: str | None = None, baseline: str | None = None
    ) -> Flow[Leaderboard]:
        """Complete evaluations over both, the highest mean first, with differences from ``baseline``, the id of one."""
        params = given(query_set=query_set, judgement_set=judgement_set, measure=measure, baseline=baseline)
        return self._ask("GET", resource_path("evaluations", "leaderboard"), params=params)

    @listing
    def queries(self, evaluation_id: str, **filters: Any) -> Pages[QueryValues]:
        """The values of each query; ``filters`` such as ``tag``, or ``list`` for those that were left out."""
        return Pages(Request("GET", resource_path("evaluations", evaluation_id, "queries"), params=filters))

    @listing
    def list(self, **filters: Any) -> Pages[SavedEvaluation]:
        """Newest first; ``filters`` such as ``job``, ``judgement_set`` or ``measure``."""
        return Pages(Request("GET", resource_path("evaluations"), params=filters))
