"""Comparisons of rankings: make, read, change, take away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.shapes import Comparison

Ranking = str | tuple[str, int]  # a job's id, for its last stage, or (job, stage)


def rankings_named(rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    """As requests name them."""
    return [{"job": one} if isinstance(one, str) else {"job": one[0], "stage": one[1]} for one in rankings]


class Comparisons(Resource[S]):
    @operation
    def create(
        self, stages: Sequence[Ranking], *, judgement_set: str | None = None,
        primary_measure: str | None = None, test: str | None = None, name: str | None = None, **fields: Any,
    ) -> Flow[Comparison]:  # fmt: skip
        """Compare two to four rankings, the baseline first: each a job's id, for its last stage, or (job, stage).

        ``primary_measure`` (nDCG@10) and ``test`` (``t``, ``randomisation``, or of more than two ``randomised_tukey``)
        decide, and are chosen here for good.
        """
        optional = given(judgement_set=judgement_set, primary_measure=primary_measure, test=test, name=name)
        body = {"stages": rankings_named(stages), **optional, **fields}
        return self._ask("POST", resource_path("comparisons"), json=body, repeatable=False)

    @operation
    def get(self, comparison_id: str) -> Flow[Comparison]:
        return self._ask("GET", resource_path("comparisons", comparison_id))

    @operation
    def change(self, comparison_id: str, **fields: Any) -> Flow[Comparison]:
        """Its ``name``, ``notes``, ``pinned`` or ``baseline`` (a position from 0)."""
        return self._ask("PATCH", resource_path("comparisons", comparison_id), json=fields)

    @operation
    def recompute(self, comparison_id: str) -> Flow[Comparison]:
        """The same with the newest version of its judgements, as a comparison of its own."""
        return self._ask("POST", resource_path("comparisons", comparison_id, "recompute"), repeatable=False)

    @operation
    def delete(self, comparison_id: str) -> Flow[None]:
        return self._ask("DELETE", resource_path("comparisons", comparison_id))

    @operation
    def export(self, comparison_id: str, target: Path | str | BinaryIO, *, format: str = "wide") -> Flow[None]:
        """Write what was measured to a file: ``wide`` or ``long`` (CSV), ``markdown``, ``latex``."""
        return self._download(resource_path("comparisons", comparison_id, "export"), target, {"format": format})

    @listing
    def list(self, **filters: Any) -> Pages[Comparison]:
        """The pinned ones first, then the newest."""
        return Pages(Request("GET", resource_path("comparisons"), params=filters))
