"""A comparison as a report, with where its numbers come from."""

from __future__ import annotations

from importlib.metadata import version

from assay.errors import AssayError
from scoring.export.reports import Report, System
from scoring.models import Comparison, Query, Stage
from scoring.selectors.comparability import comparability
from scoring.selectors.comparison_measures import Measured
from scoring.selectors.comparison_statistics import coverage_remarks
from scoring.selectors.comparisons import LETTERS, stages_compared
from scoring.statistics import PairedTest


def comparison_report(comparison: Comparison, measured: Measured | None) -> Report:
    """Raises AssayError 409 ``job_not_ended`` while a job of it is ranked anew, ``not_measured`` without judgements."""
    if measured is None:
        message = f"'{comparison.name}' cannot be exported now: a job in it is being ranked anew, or was deleted."
        raise AssayError("job_not_ended", message, status=409)
    if measured.table is None:
        message = f"'{comparison.name}' has no judgements: nothing was measured. Make one with a judgement set."
        raise AssayError("not_measured", message, status=409)
    stages = stages_compared(comparison)
    queries = Query.objects.filter(query_set=stages[0].job.query_set_id).order_by("position")
    return Report(
        name=f"assay-comparison-{comparison.pk}",
        title=comparison.name,
        provenance=_provenance(comparison, stages, measured),
        systems=[System(letter, str(stage), stage.job.name) for letter, stage in zip(LETTERS, stages, strict=False)],
        table=measured.table,
        query_ids=list(queries.values_list("external_id", flat=True)),
        values=measured.arrays["values"],
    )


def _provenance(comparison: Comparison, stages: list[Stage], measured: Measured) -> list[str]:
    table, judgements, query_set = measured.table, comparison.judgement_set, stages[0].job.query_set
    assert table is not None
    libraries = ", ".join(f"{name} {number}" for name, number in {"assay": version("assay"), **table.versions}.items())
    compared = comparability(stages, comparison.judgement_set)
    test = PairedTest(comparison.test)
    return [
        f"Comparison {comparison.pk}, made {comparison.created_at:%Y-%m-%d %H:%M} UTC",
        *(_stage_line(letter, stage) for letter, stage in zip(LETTERS, stages, strict=False)),
        f"Queries: {query_set.name} ({query_set.pk})",
        f"Judgements: {judgements.name} ({judgements.pk}), version {judgements.version}, relevant from grade "
        f"{judgements.relevant_from}"
        if judgements
        else "Judgements: deleted since",
        f"n = {table.n} of {stages[0].job.query_count} queries for the primary "
        f"measure {table.measures[0]}, those that all rankings have a value for; other measures are exploratory",
        f"Test: {test.words}; correction: {test.correction_words}",
        f"Computed by {libraries}",
        *(remark.text for remark in compared.remarks),
        *coverage_remarks(table),
    ]


def _stage_line(letter: str, stage: Stage) -> str:
    baseline = " (baseline)" if letter == LETTERS[0] else ""
    revision = f", revision {stage.model_revision}" if stage.model_revision else ""
    documents = stage.job.document_set
    return (
        f"{letter}{baseline}: {stage}{revision}, stage {stage.index} of job {stage.job.name} ({stage.job_id}), "
        f"documents {documents.name} ({documents.pk})"
    )
