"""What making a comparison costs, its rankings measured before or not: python benchmarks/comparison.py [QUERIES]

Four stages of 100 kept documents per query, of a set of 10,000, with 20 judged documents per query. Starts servers of
its own, as the tests do, unless DATABASE_URL names one; works in a database that it creates and drops. The last line is
JSON: seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import django
import numpy as np
from django.db import connection
from django.test.utils import CaptureQueriesContext

STAGES, DOCUMENTS, KEPT, JUDGED = 4, 10_000, 100, 20


def ranked(queries: int) -> tuple[Any, list[Any], Any]:
    """A team's stages, and judgements of their queries."""
    from accounts.services import team_default
    from assay.api.principal import Principal
    from scoring.models import (
        Document,
        DocumentSet,
        Job,
        Judgement,
        JudgementSet,
        Query,
        QueryResult,
        QuerySet,
        ScoringModel,
        Stage,
    )
    from scoring.states import JobState, ModelState, StageState

    team, draw, now = team_default(), np.random.default_rng(0), django.utils.timezone.now()
    model = ScoringModel.objects.create(name="m", kind="late-interaction", source="x", state=ModelState.AVAILABLE)
    documents, asked, judged = (
        kind.objects.create(team=team, name=kind.__name__, checksum="c")
        for kind in (DocumentSet, QuerySet, JudgementSet)
    )
    Document.objects.bulk_create(
        Document(document_set=documents, position=n, external_id=f"d{n}", text="d") for n in range(DOCUMENTS)
    )
    rows = Query.objects.bulk_create(
        Query(query_set=asked, position=n, external_id=f"q{n}", text="q") for n in range(queries)
    )
    job = Job.objects.create(
        team=team, name="j", document_set=documents, query_set=asked, query_count=queries, document_count=DOCUMENTS,
        pair_count=queries * DOCUMENTS * STAGES, state=JobState.COMPLETED,
    )  # fmt: skip
    order = np.array([draw.permutation(DOCUMENTS)[: 2 * KEPT] for _ in rows], "<i4")
    raw, statuses = np.linspace(1, 0, KEPT, dtype="<f4").tobytes(), bytes(KEPT)
    for index in range(STAGES):
        stage = Stage.objects.create(
            job=job, index=index, model=model, state=StageState.DONE, pair_count=queries * DOCUMENTS, query_block=64,
            document_block=1024, top_k=KEPT, finished_at=now,
        )  # fmt: skip
        QueryResult.objects.bulk_create(
            QueryResult(
                stage=stage, query=query, query_position=place, kept=KEPT, scored=KEPT, raw_scores=raw,
                statuses=statuses, positions=order[place][draw.permutation(2 * KEPT)[:KEPT]].tobytes(),
            )
            for place, query in enumerate(rows)
        )  # fmt: skip
    pairs = [(place, document) for place in range(queries) for document in order[place][:JUDGED]]
    Judgement.objects.bulk_create(
        Judgement(
            judgement_set=judged, position=n, query_id=f"q{place}", document_id=f"d{document}",
            grade=int(draw.integers(4)),
        )
        for n, (place, document) in enumerate(pairs)
    )  # fmt: skip
    principal = Principal(user=None, team=team, token=None, scopes=frozenset())
    stages = Stage.objects.select_related("job__query_set", "job__document_set", "model").order_by("index")
    return principal, list(stages), judged


def made(principal: Any, stages: list[Any], judgements: Any) -> tuple[float, int]:
    """Seconds and statements of the database."""
    from scoring.services.comparisons import comparison_create

    with CaptureQueriesContext(connection) as statements:
        begun = time.perf_counter()
        comparison_create(principal=principal, stages=stages, judgement_set=judgements)
        seconds = time.perf_counter() - begun
    return seconds, len(statements)


def main(queries: int) -> None:
    from scoring.services.evaluations import evaluation_create

    principal, stages, judgements = ranked(queries)
    print(f"{STAGES} stages of {queries:,} queries, {KEPT} documents kept, {JUDGED} judged, {os.cpu_count()} cores")
    result = {"nothing measured": made(principal, stages, judgements)}
    result["again"] = made(principal, stages, judgements)
    begun = time.perf_counter()
    for stage in stages:
        evaluation_create(principal=principal, stage=stage, judgement_set=judgements)
    print(f"measuring the four by themselves: {time.perf_counter() - begun:.2f} s")
    result["measured before"] = made(principal, stages, judgements)
    result["measured before, again"] = made(principal, stages, judgements)
    for name, (seconds, statements) in result.items():
        print(f"{name}: {seconds:.2f} s, {statements} statements")
    print(json.dumps({name: round(seconds, 3) for name, (seconds, _) in result.items()}))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.test")
    django.setup()
    from django.test.utils import setup_databases, teardown_databases

    state = setup_databases(verbosity=0, interactive=False, aliases={"default": False})
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
    finally:
        teardown_databases(state, verbosity=0)
