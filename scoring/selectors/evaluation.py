"""Measures of a job against judgements. The measures are ir-measures'; ours is the ranking they are fed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import ir_measures
from ir_measures import Measure, Qrel, ScoredDoc

from assay.errors import AssayError
from scoring.models import Document, Job, Judgement, JudgementSet, QueryResult, Stage
from scoring.selectors.jobs import Ranking
from scoring.states import JobState

DEFAULT_MEASURES: Final = ("nDCG@10", "RR@10", "R@100", "Judged@10")
MEASURES: Final = ("nDCG", "RR", "AP", "P", "R", "Success", "Judged", "Rprec", "Bpref")
PARAMETERS: Final = {"cutoff": range(1, 100_001), "rel": range(1, 32_768)}
MAX_MEASURES: Final = 20
EVALUATED: Final = (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.CANCELLED, JobState.EXPIRED)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``means`` over the ``evaluated`` queries; a judged query without results counts 0 and is listed.

    ``complete`` is False when the job did not score every pair: the means are then partial.
    """

    measures: list[str]
    means: dict[str, float]
    per_query: dict[str, dict[str, float]]  # query id -> measure -> value
    evaluated: int
    queries: int
    unjudged_queries: list[str]  # left out
    queries_without_results: list[str]  # counted 0
    complete: bool


def measures_parse(names: Sequence[str]) -> list[Measure]:
    """Raises AssayError 422 for what ir-measures does not know, and for what it would hand to other programs."""
    if not 1 <= len(names) <= MAX_MEASURES:
        raise _unknown(f"{len(names)} measures were asked for, between 1 and {MAX_MEASURES} are possible")
    return [_measure(name) for name in names]


def _measure(name: str) -> Measure:
    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError) as error:
        raise _unknown(f"'{name}' cannot be read ({error})") from error
    if measure.NAME not in MEASURES or not set(measure.params) <= set(PARAMETERS):
        raise _unknown(f"'{name}' is not computed here")
    for parameter, value in measure.params.items():
        # The computation is C code that trusts its caller: a cut-off of 0 ends the process.
        if isinstance(value, bool) or not isinstance(value, int) or value not in PARAMETERS[parameter]:
            least, most = PARAMETERS[parameter][0], PARAMETERS[parameter][-1]
            raise _unknown(f"the {parameter} of '{name}' is {value}, it must be between {least} and {most:,}")
    return measure


def _unknown(what: str) -> AssayError:
    return AssayError(
        "unknown_measure",
        f"{what[0].upper()}{what[1:]}. Give {', '.join(MEASURES)} with a cut-off (@k) and rel, such as nDCG@10, "
        "RR@10, P(rel=2)@5.",
        status=422,
        param="measures",
    )


def stage_evaluate(stage: Stage, judgements: JudgementSet, *, measures: Sequence[str] = DEFAULT_MEASURES) -> Evaluation:
    """Measure the stored ranks (the library gets -rank as the score, so that ties are ours) against ``judgements``.

    Raises AssayError 409 for a job without results, 422 for unknown measures or judgements of none of its queries.
    """
    job = stage.job
    if job.state not in EVALUATED:
        message = f"Job '{job.name}' is {job.state}; it can be measured when it has ended."
        raise AssayError("job_not_ended", message, status=409)
    parsed = measures_parse(measures)
    queries = list(job.query_set.queries.values_list("external_id", flat=True))
    judged = _qrels(judgements, set(queries))
    if not judged:
        raise AssayError(
            "judgements_do_not_match",
            f"Judgement set '{judgements.name}' names none of the {len(queries):,} queries of '{job.query_set.name}'. "
            "Both must use the same query ids.",
            status=422,
            param="judgement_set",
        )
    judged_ids = {qrel.query_id for qrel in judged}
    with_results = set(QueryResult.objects.filter(stage=stage, kept__gt=0).values_list("query__external_id", flat=True))
    per_query: dict[str, dict[str, float]] = {query_id: {} for query_id in queries if query_id in judged_ids}
    for metric in ir_measures.iter_calc(parsed, judged, _run(stage, judged_ids)):
        per_query[metric.query_id][str(metric.measure)] = metric.value
    names = [str(measure) for measure in parsed]
    for values in per_query.values():
        for name in names:
            values.setdefault(name, 0.0)
    return Evaluation(
        measures=names,
        means={name: sum(values[name] for values in per_query.values()) / len(per_query) for name in names},
        per_query=per_query,
        evaluated=len(per_query),
        queries=len(queries),
        unjudged_queries=[query_id for query_id in queries if query_id not in judged_ids],
        queries_without_results=[query_id for query_id in per_query if query_id not in with_results],
        complete=job.state == JobState.COMPLETED,
    )


def _qrels(judgements: JudgementSet, queries: set[str]) -> list[Qrel]:
    """Grades of the job's queries. A negative grade means pooled but not judged: it is left out."""
    judged = Judgement.objects.filter(judgement_set=judgements, grade__gte=0)
    rows = judged.values_list("query_id", "document_id", "grade")
    return [Qrel(query, document, grade) for query, document, grade in rows.iterator() if query in queries]


def _run(stage: Stage, queries: set[str]) -> Iterator[ScoredDoc]:
    name_of = document_names(stage.job)
    results = QueryResult.objects.filter(stage=stage, query__external_id__in=queries).select_related("query")
    for result in results.iterator(chunk_size=50):
        for rank, position in enumerate(Ranking.of(result).positions.tolist(), start=1):
            yield ScoredDoc(result.query.external_id, name_of[position], -float(rank))


def document_names(job: Job) -> list[str]:
    """External ids by position."""
    documents = Document.objects.filter(document_set=job.document_set_id).order_by("position")
    return list(documents.values_list("external_id", flat=True))
