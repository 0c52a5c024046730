"""Batch jobs: submit, steer, wait, read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.judging_shapes import Thresholds
from assay.client.shapes import FINAL_STATES, Evaluation, Event, Job, QueryResult, Stage
from assay.client.waiting import until


class Jobs(Resource[S]):
    @operation
    def create(
        self, document_set: str, query_set: str, *, model: str | None = None, stages: Sequence[Stage] | None = None,
        top_k: int | None = None, name: str | None = None, idempotency_key: str | None = None, **fields: Any,
    ) -> Flow[Job]:  # fmt: skip
        """Rank the documents of a set for every query of a set, by one model or in several ``stages``.

        The call has an Idempotency-Key of its own, so that a new try makes no second job; give ``idempotency_key`` to
        make a repeated call safe as well. ``fields`` such as ``priority`` or ``complete_within``.
        """
        optional = given(model=model, stages=stages, top_k=top_k, name=name)
        body = {"document_set": document_set, "query_set": query_set, **optional, **fields}
        return self._create(resource_path("jobs"), body, idempotency_key)

    @operation
    def clone(self, job_id: str, *, idempotency_key: str | None = None) -> Flow[Job]:
        """The same job again, with the models as they are now."""
        return self._create(resource_path("jobs", job_id, "clone"), None, idempotency_key)

    def _create(self, path: str, body: dict[str, Any] | None, key: str | None) -> Flow[Job]:
        return self._ask("POST", path, json=body, headers={"Idempotency-Key": key or str(uuid.uuid4())})

    @operation
    def get(self, job_id: str) -> Flow[Job]:
        return self._ask("GET", resource_path("jobs", job_id))

    @operation
    def change(self, job_id: str, **fields: Any) -> Flow[Job]:
        """Its ``name``, ``priority`` or ``complete_within``."""
        return self._ask("PATCH", resource_path("jobs", job_id), json=fields)

    @operation
    def delete(self, job_id: str) -> Flow[None]:
        return self._ask("DELETE", resource_path("jobs", job_id))

    @operation
    def cancel(self, job_id: str) -> Flow[Job]:
        """What is scored stays."""
        return self._ask("POST", resource_path("jobs", job_id, "cancel"))

    @operation
    def pause(self, job_id: str) -> Flow[Job]:
        return self._ask("POST", resource_path("jobs", job_id, "pause"))

    @operation
    def resume(self, job_id: str) -> Flow[Job]:
        return self._ask("POST", resource_path("jobs", job_id, "resume"))

    @operation
    def retry(self, job_id: str) -> Flow[Job]:
        """Queue an ended job again with what is unfinished."""
        return self._ask("POST", resource_path("jobs", job_id, "retry"), repeatable=False)

    @operation
    def wait(
        self, job_id: str, *, seconds: float | None = None, on_progress: Callable[[Job], None] | None = None
    ) -> Flow[Job]:
        """The job once it has ended, however that was (see ``state``). Raises WaitTimeoutError after ``seconds``."""
        path = resource_path("jobs", job_id)
        return until(
            lambda: self._ask("GET", path),
            lambda job: job["state"] in FINAL_STATES,
            seconds=seconds,
            on_progress=on_progress,
        )

    @operation
    def evaluation(
        self, job_id: str, judgement_set: str, *, measures: Sequence[str] | None = None, stage: int | None = None
    ) -> Flow[Evaluation]:
        """``measures`` in the names of ir-measures, such as nDCG@10."""
        listed = ",".join(measures) if measures is not None else None
        params = given(judgement_set=judgement_set, measures=listed, stage=stage)
        return self._ask("GET", resource_path("jobs", job_id, "evaluation"), params=params)

    @operation
    def thresholds(
        self, job_id: str, judgement_set: str, *, score: float | None = None, stage: int | None = None,
        relevant_from: int | None = None, per_query_token: bool = False,
    ) -> Flow[Thresholds]:  # fmt: skip
        """What cut-offs for the scores of a stage would do, by the judged pairs; of ``score`` alone, if it is given."""
        optional = given(score=score, stage=stage, relevant_from=relevant_from, per_query_token=per_query_token or None)
        params = {"judgement_set": judgement_set, **optional}
        return self._ask("GET", resource_path("jobs", job_id, "thresholds"), params=params)

    @operation
    def export(
        self, job_id: str, target: Path | str | BinaryIO, *, format: str = "jsonl", stage: int | None = None
    ) -> Flow[None]:
        """Write all rankings to a file as they come. At a path, nothing stands until all of it is there."""
        return self._download(resource_path("jobs", job_id, "export"), target, given(format=format, stage=stage))

    @operation
    def explain(self, job_id: str, query: str, document: str, *, stage: int | None = None) -> Flow[dict[str, Any]]:
        """Why a document has its rank: the pair scored once more, beside its stored score. Both are named by their ids
        in the uploaded files."""
        params = {"query": query, "document": document, **given(stage=stage)}
        return self._ask("GET", resource_path("jobs", job_id, "explanation"), params=params)

    @listing
    def results(
        self, job_id: str, *, top_n: int | None = None, texts: bool = False, query_id: str | None = None,
        stage: int | None = None, page_size: int | None = None,
    ) -> Pages[QueryResult]:  # fmt: skip
        """The best documents of each query, query by query."""
        params = given(top_n=top_n, query_id=query_id, stage=stage, page_size=page_size, texts=texts or None)
        return Pages(Request("GET", resource_path("jobs", job_id, "results"), params=params))

    @listing
    def events(self, job_id: str, **filters: Any) -> Pages[Event]:
        """Everything that happened to the job, its stages and its chunks, newest first."""
        return Pages(Request("GET", resource_path("jobs", job_id, "events"), params=filters))

    @listing
    def list(self, **filters: Any) -> Pages[Job]:
        """Newest first; ``filters`` such as ``state`` or ``name``."""
        return Pages(Request("GET", resource_path("jobs"), params=filters))
