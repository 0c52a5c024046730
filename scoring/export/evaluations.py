"""An evaluation as a report, with where its numbers come from."""

from __future__ import annotations

from typing import Final

import numpy as np

from scoring.export.reports import Report, System
from scoring.models import Evaluation, Query
from scoring.selectors.comparison_statistics import measure_table
from scoring.selectors.evaluations import EvaluationArrays
from scoring.statistics import PairedTest

SETS: Final = {"Documents": "document_set", "Queries": "query_set"}


def evaluation_report(evaluation: Evaluation, arrays: EvaluationArrays) -> Report:
    """One ranking, so nothing is tested."""
    job = evaluation.stage.job
    query_ids = list(Query.objects.filter(query_set=job.query_set_id).values_list("external_id", flat=True))
    values = np.full((1, len(evaluation.measures), len(query_ids)), np.nan)
    values[0][:, arrays.positions] = arrays.values
    table = measure_table(values, evaluation.measures, [not evaluation.incomplete], PairedTest.T)
    return Report(
        name=f"assay-evaluation-{evaluation.pk}",
        title=str(evaluation),
        provenance=_provenance(evaluation),
        systems=[System("A", str(evaluation.stage), job.name)],
        table=table,
        query_ids=query_ids,
        values=values,
    )


def _provenance(evaluation: Evaluation) -> list[str]:
    pinned = evaluation.pinned
    job, stage, judgements = pinned["job"], pinned["stage"], pinned["judgement_set"]
    code = ", ".join(f"{name} {number}" for name, number in pinned["code"].items())
    left_out = (
        f"{evaluation.unjudged} without judgements left out, {evaluation.without_results} without results count 0"
    )
    relevant = "; only queries with a relevant document" if evaluation.only_relevant else ""
    return [
        f"Evaluation {evaluation.pk}, made {evaluation.created_at:%Y-%m-%d %H:%M} UTC",
        f"A: {stage['name']}, revision {stage['revision'] or 'none'}, stage {stage['index']} of job {job['name']} "
        f"({job['id']})",
        *(f"{noun}: {pinned[name]['name']} ({pinned[name]['id']})" for noun, name in SETS.items()),
        f"Judgements: {judgements['name']} ({judgements['id']}), version {judgements['version']}, relevant from grade "
        f"{judgements['relevant_from']}",
        f"n = {evaluation.evaluated} of {evaluation.query_count} queries: {left_out}{relevant}",
        f"Computed by {code}",
        *(["Incomplete: not every pair was scored, the means are of a part"] if evaluation.incomplete else []),
    ]
