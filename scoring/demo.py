"""The main job as a client sees it: everything here goes over HTTP, nothing is imported from the platform's inside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

SHOWN_QUERIES: Final = ("q01", "q03", "q09")
POLL_SECONDS: Final = 0.5
MEASURES: Final = ("nDCG@10", "RR")
FINAL: Final = ("completed", "completed_with_errors", "cancelled", "failed")


class DemoFailed(Exception):
    """The platform answered otherwise than the demo needs; the message holds its words."""


@dataclass(frozen=True, slots=True)
class Demo:
    """``say`` prints a line, ``redraw`` replaces the current one (a progress bar)."""

    client: httpx.Client
    examples: Path
    say: Callable[[str], None]
    redraw: Callable[[str], None]

    def run(self) -> None:
        documents = self._upload(
            "document-sets", "documents.csv", "Household advice", {"title": "title", "text": "body"}
        )
        queries = self._upload("query-sets", "queries.tsv", "Household questions")
        judgements = self._upload("judgements", "judgements.txt", "Household judgements")
        job = self._post(
            "/api/v1/jobs",
            {"name": "Demo", "model": "minilm-late", "document_set": documents["id"], "query_set": queries["id"]},
        )
        job = self._watch(job)
        self._show_top(job)
        self._show_measures(job, judgements)
        self._rerank()
        self._judge()
        self.say(
            f"\n`make serve` keeps it up: the job is then at /jobs/{job['id']}, the API's documentation at /api/docs/"
        )

    def _upload(
        self, resource: str, file_name: str, name: str, mapping: dict[str, str] | None = None
    ) -> dict[str, Any]:
        with (self.examples / file_name).open("rb") as file:
            uploaded = self._checked(
                self.client.post(
                    f"/api/v1/{resource}",
                    files={"file": (file_name, file)},
                    data={
                        "name": name,
                        "use_existing": "true",
                        **({"mapping": json.dumps(mapping)} if mapping else {}),
                    },
                )
            )
        self.say(f"{uploaded['name']}: {uploaded['counts']['kept']} rows of {file_name}")
        return uploaded

    def _watch(self, job: dict[str, Any]) -> dict[str, Any]:
        self.say(f"\nReranking {job['query_count']} queries × {job['document_count']} documents with {job['model']}")
        while job["state"] not in FINAL:
            if job["progress"]["percent"] < 100:  # what comes after the last pair takes a moment and is no news
                self._draw(job["progress"], otherwise="the first chunk runs")
            time.sleep(POLL_SECONDS)
            job = self._get(f"/api/v1/jobs/{job['id']}")
        self._draw(job["progress"], otherwise="done")
        self.say("")
        if job["state"] != "completed":
            raise DemoFailed(f"The job ended as {job['state']}: {job['failure'] or job['statistics']}")
        return job

    def _draw(self, progress: dict[str, Any], *, otherwise: str) -> None:
        rate = f"{progress['rate']:,.0f} pairs/s" if progress["rate"] else progress["reason"] or otherwise
        done = int(30 * progress["percent"] / 100)
        self.redraw(f"  [{'█' * done}{'·' * (30 - done)}] {progress['percent']:3.0f} %  {rate:<40}")

    def _show_top(self, job: dict[str, Any]) -> None:
        for query in SHOWN_QUERIES:
            page = self._get(f"/api/v1/jobs/{job['id']}/results", query_id=query, top_n=3, texts="true")
            (result,) = page["results"]
            self.say(f"\n{query}  {result['query']}")
            for row in result["documents"]:
                self.say(f"  {row['rank']}. {row['score']:6.3f}  {row['document_id']:4} {row['title']}")

    def _show_measures(self, job: dict[str, Any], judgements: dict[str, Any]) -> None:
        evaluation = self._get(
            f"/api/v1/jobs/{job['id']}/evaluation", judgement_set=judgements["id"], measures=",".join(MEASURES)
        )
        shown = "   ".join(f"{name} {evaluation['means'][name]:.4f}" for name in evaluation["measures"])
        self.say(
            f"\n{shown}   (MRR is the mean of RR; n = {evaluation['evaluated']} of {evaluation['queries']} queries)"
        )

    def _rerank(self) -> None:
        query = "how do I stop a nosebleed?"
        documents = [
            "Lean forward and pinch the soft part of the nose for ten minutes.",
            "Descale a kettle with vinegar, then rinse it twice.",
            "Lie back and tilt the head: an old advice that makes you swallow blood.",
        ]
        answer, milliseconds = self._timed("/rerank", {"query": query, "documents": documents, "model": "minilm-late"})
        self.say(f"\nPOST /rerank: {query}  ({milliseconds:.0f} ms)")
        for result in answer["results"]:
            self.say(f"  {result['relevance_score']:6.3f}  [{result['index']}] {result['document']['text']}")

    def _judge(self) -> None:
        query = "What is the capital of France?"
        items = ["Paris is the capital of France.", "Bread dough rises faster in a warm kitchen."]
        answer, milliseconds = self._timed("/generative_scoring", {"query": query, "items": items})
        self.say(f'\nPOST /generative_scoring: does it answer "{query}"?  ({milliseconds:.0f} ms)')
        for item, result in zip(items, answer["data"], strict=True):
            shares = ", ".join(f"{label['label']} {label['probability']:.3f}" for label in result["labels"])
            self.say(f"  {shares}  {item}")

    def _timed(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        started = time.perf_counter()
        return self._post(path, body), 1000 * (time.perf_counter() - started)

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return self._checked(self.client.get(path, params=parameters))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._checked(self.client.post(path, json=body))

    def _checked(self, response: httpx.Response) -> dict[str, Any]:
        if response.is_success:
            answer: dict[str, Any] = response.json()
            return answer
        raise DemoFailed(
            f"{response.request.method} {response.request.url} answered {response.status_code}: {response.text}"
        )
