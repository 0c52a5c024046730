"""BM25, a bi-encoder and late interaction on the Cranfield collection, measured and compared over the REST API alone.

    python benchmarks/cranfield_evaluation.py URL TOKEN FOLDER

FOLDER holds documents.jsonl, queries.jsonl and qrels.txt. TOKEN needs the scopes jobs and models:read; the platform
serves the bundled models minilm and minilm-late. BM25 is that of bm25s with its defaults; each ranking keeps 1,000
documents a query. Prints, as Markdown, means with what was judged, and every pair of rankings: the difference, its 95 %
interval and p of the paired t-test, Holm-corrected over the rankings compared with one baseline.
"""

from __future__ import annotations

import itertools
import platform
import sys
from pathlib import Path
from typing import Any, Final

from assay.client import Client

DEPTH: Final = 1_000
RANKINGS: Final[dict[str, dict[str, Any]]] = {
    "BM25": {"method": "bm25", "top_k": DEPTH},
    "minilm": {"model": "minilm", "top_k": DEPTH},
    "minilm-late": {"model": "minilm-late", "top_k": DEPTH},
}
MEASURES: Final = ["nDCG@10", "RR@10", "R@100", "AP", "Judged@10"]
COMPARED: Final = ("nDCG@10", "RR@10")


def main(url: str, token: str, folder: Path) -> None:
    with Client(url, token) as assay:
        documents = assay.document_sets.upload(folder / "documents.jsonl", name="Cranfield")["id"]
        queries = assay.query_sets.upload(folder / "queries.jsonl", name="Cranfield")["id"]
        judgements = assay.judgements.upload(folder / "qrels.txt", name="Cranfield")["id"]
        evaluations = {}
        for name, stage in RANKINGS.items():
            job = assay.jobs.create(documents, queries, stages=[stage], name=f"Cranfield by {name}")
            job = assay.jobs.wait(job["id"])
            if job["state"] != "completed":
                sys.exit(f"The job of {name} ended as {job['state']}: {job['failure']}")
            evaluations[name] = assay.evaluations.create(job["id"], judgements, measures=MEASURES)
        show_means(evaluations)
        for measure in COMPARED:
            show_pairs(assay, measure, queries, judgements, {one["id"]: name for name, one in evaluations.items()})


def show_means(evaluations: dict[str, Any]) -> None:
    first = next(iter(evaluations.values()))
    code = first["pinned"]["code"] if "pinned" in first else {}
    print(f"{platform.machine()}, Python {platform.python_version()}, {code}")
    print(f"n = {first['n']} of {first['queries']} queries\n")
    print(f"| Ranking | {' | '.join(MEASURES)} |\n|{' --- |' * (len(MEASURES) + 1)}")
    for name, evaluation in evaluations.items():
        means = (f"{figure['mean']:.4f}" for figure in evaluation["measures"])
        print(f"| {name} | {' | '.join(means)} |")


def show_pairs(assay: Client, measure: str, queries: str, judgements: str, names: dict[str, str]) -> None:
    print(f"\n{measure}\n\n| Baseline | Other | Δ | 95 % interval | better / equal / worse | p | p corrected |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for baseline, other in itertools.permutations(names, 2):
        board = assay.evaluations.leaderboard(queries, judgements, measure=measure, baseline=baseline)
        row = next(row for row in board["rows"] if row["evaluation"] == other)
        interval = f"{row['interval']['low']:+.4f} to {row['interval']['high']:+.4f}" if row["interval"] else "none"
        counts = f"{row['better']} / {row['equal']} / {row['worse']}"
        tests = " | ".join("none" if row[key] is None else f"{row[key]:.2g}" for key in ("p", "p_corrected"))
        print(f"| {names[baseline]} | {names[other]} | {row['delta']:+.4f} | {interval} | {counts} | {tests} |")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        print("skipped: give URL TOKEN FOLDER (a running platform, a token, the Cranfield collection)")
