"""What scored pairs take on the disk, what ranking them takes in memory, and how fast a page of a ranking is read.

    python benchmarks/results.py [QUERIES] [DOCUMENTS] [TOP_K]

Starts servers of its own, as the tests do, unless DATABASE_URL names one; works in a database that it creates and
drops. TOP_K 0 keeps all. Scores are random, so nothing is gained by compressing them.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import django
import numpy as np
from django.db import connection

DOCUMENTS_PER_CHUNK = 1024
DOCUMENTS = """
INSERT INTO scoring_document (document_set_id, position, external_id, title, text, metadata, is_empty)
SELECT %s, n, n, '', 'd', '{}', false FROM generate_series(0, %s - 1) n
"""


def score_all(queries: int, documents: int, top_k: int) -> None:
    """A job of one stage, its chunks done; documents without texts, which are not measured here."""
    from accounts.services import team_default
    from scoring.models import Chunk, DocumentSet, Job, Query, QuerySet, ScoringModel, Stage
    from scoring.ranking import ScoreBlock
    from scoring.services.chunk_plan import BlockSize, blocks
    from scoring.states import ChunkState, JobState, ModelState, StageState

    team, pairs = team_default(), queries * documents
    model = ScoringModel.objects.create(name="m", kind="late-interaction", source="x", state=ModelState.AVAILABLE)
    document_set = DocumentSet.objects.create(team=team, name="d", checksum="d")
    query_set = QuerySet.objects.create(team=team, name="q", checksum="q")
    Query.objects.bulk_create(
        Query(query_set=query_set, position=n, external_id=str(n), text="q") for n in range(queries)
    )
    with connection.cursor() as cursor:
        cursor.execute(DOCUMENTS, [document_set.pk, documents])
    job = Job.objects.create(
        team=team, name="j", document_set=document_set, query_set=query_set, query_count=queries,
        document_count=documents, pair_count=pairs, state=JobState.RUNNING,
    )  # fmt: skip
    stage = Stage.objects.create(
        job=job, index=0, model=model, state=StageState.RUNNING, pair_count=pairs, query_block=1024,
        document_block=DOCUMENTS_PER_CHUNK, top_k=top_k or None,
    )  # fmt: skip
    draw, now = np.random.default_rng(0), django.utils.timezone.now()
    size = BlockSize(1024, DOCUMENTS_PER_CHUNK)
    for n, block in enumerate(blocks(query_count=queries, document_count=documents, size=size)):
        raw = draw.standard_normal((block.query_count, block.document_count), np.float32)
        scores = ScoreBlock(raw, raw, np.zeros(raw.shape, np.uint8)).packed()
        Chunk.objects.create(
            job=job, stage=stage, index=n, query_start=block.query_start, query_count=block.query_count,
            document_start=block.document_start, document_count=block.document_count, state=ChunkState.DONE,
            started_at=now, finished_at=now, report={"backend": "cpu", "dtype": "float32", "seconds": 5.0}, **scores,
        )  # fmt: skip


def size_of(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {table}")
        cursor.execute("SELECT pg_total_relation_size(%s)", [table])
        return int(cursor.fetchone()[0])


def pages(repeat: int = 5) -> dict[str, float]:
    """Median milliseconds of a page of 10, by where in the ranking it is."""
    from scoring.models import Stage
    from scoring.selectors.jobs import ranked_documents, results_of

    result = results_of(Stage.objects.get()).select_related("stage__job").first()
    assert result is not None
    places = {"first": 0, "middle": result.kept // 2, "last": result.kept - 10}
    return {name: round(float(np.median([_timed(ranked_documents, result, start) for _ in range(repeat)])), 1)
            for name, start in places.items()}  # fmt: skip


def _timed(read, result, start: int) -> float:
    started = time.perf_counter()
    assert len(read(result, start=start, limit=10)) == 10
    return (time.perf_counter() - started) * 1000


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(queries: int, documents: int, top_k: int) -> None:
    from scoring.services.finalize import jobs_advance

    score_all(queries, documents, top_k)
    pairs, before = queries * documents, peak()
    print(f"{queries:,} queries × {documents:,} documents, top {top_k or 'all'}, {os.cpu_count()} cores")
    print(f"chunks: {size_of('scoring_chunk') / pairs:.2f} bytes per pair")
    started = time.monotonic()
    jobs_advance()
    print(f"ranked in {time.monotonic() - started:.1f} s; memory peaks at {peak():.0f} MiB, {before:.0f} before")
    kept = queries * min(documents, top_k or documents)
    print(f"rankings: {size_of('scoring_queryresult') / kept:.2f} bytes per kept pair")
    print(f"a page of 10, milliseconds: {pages()}")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.test")
    django.setup()
    from django.test.utils import setup_databases, teardown_databases

    state = setup_databases(verbosity=0, interactive=False, aliases={"default": False})
    try:
        main(*(int(given) for given in (sys.argv[1:] + ["10", "1000000", "0"][len(sys.argv) - 1 :])))
    finally:
        teardown_databases(state, verbosity=0)
