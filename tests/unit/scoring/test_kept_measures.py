"""A comparison reads what evaluations of its stages hold, and computes nothing that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from assay.api.principal import Principal
from scoring.models import Evaluation, Job, JudgementSet, Stage
from scoring.selectors.comparison_measures import Measured, measures_of
from scoring.services.evaluations import evaluation_create
from tests.web import factories

Reads = Callable[..., tuple[Measured, int]]


@pytest.fixture
def judgements(upload: Any) -> JudgementSet:
    rows = [f"q1 0 d{number} {number % 3}" for number in range(20)] + ["q2 0 d60 2", "q2 0 d3 0"]
    judged: JudgementSet = upload("judgements", "\n".join(rows).encode())
    return judged


@pytest.fixture
def stages(job: Job, worker: Any) -> list[Stage]:
    """One ranking twice: what is read for each of them does not depend on the other."""
    while factories.work(worker):
        factories.jobs_advance()
    stage = Stage.objects.select_related("job__query_set", "job__document_set").get(job=job)
    return [stage, stage]


@pytest.fixture
def measured(stages: list[Stage], judgements: JudgementSet) -> Reads:
    """What is computed of the comparison, and how often results and grades were read."""

    def run(primary: str = "nDCG@10") -> tuple[Measured, int]:
        with CaptureQueriesContext(connection) as queries:
            found = measures_of(stages, judgements, primary=primary, test="t")
        tables = ('FROM "scoring_queryresult"', 'SELECT "scoring_judgement"."query_id"', 'FROM "scoring_document"')
        return found, sum(table in one["sql"] for one in queries for table in tables)

    return run


def test_what_evaluations_hold_is_read_and_is_the_same(
    measured: Reads, stages: list[Stage], judgements: JudgementSet, principal: Principal
) -> None:
    before, reads = measured()
    with_ap, _ = measured("AP")
    evaluation_create(principal=principal, stage=stages[0], judgement_set=judgements)
    after, fewer = measured()
    assert reads - fewer == 6 and fewer == len(stages)  # the ranks of both, for how alike they are
    np.testing.assert_array_equal(after.arrays["values"], before.arrays["values"])
    assert after.table == before.table
    assert measured("AP")[1] == reads  # of AP nobody knows anything yet
    evaluation_create(principal=principal, stage=stages[0], judgement_set=judgements, measures=["AP"])
    joined, fewer = measured("AP")  # of two evaluations
    np.testing.assert_array_equal(joined.arrays["values"], with_ap.arrays["values"])
    assert fewer == len(stages)


def test_what_is_stale_or_of_other_queries_is_not_read(
    measured: Reads, stages: list[Stage], judgements: JudgementSet, principal: Principal
) -> None:
    before, reads = measured()
    evaluation_create(principal=principal, stage=stages[0], judgement_set=judgements, only_relevant=True)
    assert measured()[1] == reads
    evaluation, _ = evaluation_create(principal=principal, stage=stages[0], judgement_set=judgements)
    assert measured()[1] < reads
    for change in ({"key": "of other code"}, {"key": evaluation.key, "measures": ["P@5", "RR@10", "R@100"]}):
        Evaluation.objects.filter(pk=evaluation.pk).update(**change)
        assert measured()[1] == reads
    Evaluation.objects.filter(pk=evaluation.pk).update(key=evaluation.key, measures=evaluation.measures)
    assert measured()[1] < reads
    for stage in stages:  # ranked anew
        stage.finished_at = timezone.now()
    again, read = measured()
    assert read == reads
    np.testing.assert_array_equal(again.arrays["values"], before.arrays["values"])
