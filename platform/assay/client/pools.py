"""Pools of pairs that people or models judge: make, judge, see how far judges agree, publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.client.comparisons import Ranking, rankings_named
from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.judging_shapes import Agreement, ClaimedPair, ModelJudging, Pool
from assay.client.shapes import UploadedSet


class Pools(Resource[S]):
    @operation
    def create(
        self, stages: Sequence[Ranking] = (), *, k: int | None = None, base: str | None = None, **fields: Any
    ) -> Flow[Pool]:
        """The first ``k`` documents of rankings, without the pairs that ``base``, a judgement set, grades.

        A ranking is a job's id, for its last stage, or (job, stage). ``fields`` such as ``run_set``, ``name``,
        ``scale``, ``quorum`` or ``rule``."""
        body = {"stages": rankings_named(stages), **given(k=k, base=base), **fields}
        return self._ask("POST", resource_path("pools"), json=body, repeatable=False)

    @operation
    def get(self, pool_id: str) -> Flow[Pool]:
        """With ``progress``, and what publishing it would give."""
        return self._ask("GET", resource_path("pools", pool_id))

    @operation
    def close(self, pool_id: str) -> Flow[Pool]:
        """No pair is handed out any more; what was judged stays."""
        return self._ask("PATCH", resource_path("pools", pool_id), json={"state": "closed"}, repeatable=False)

    @operation
    def open(self, pool_id: str) -> Flow[Pool]:
        return self._ask("PATCH", resource_path("pools", pool_id), json={"state": "open"}, repeatable=False)

    @operation
    def delete(self, pool_id: str) -> Flow[None]:
        """With its verdicts; what was published stays."""
        return self._ask("DELETE", resource_path("pools", pool_id))

    @operation
    def claims(self, pool_id: str, count: int = 1) -> Flow[dict[str, Sequence[ClaimedPair]]]:
        """``pairs`` to judge, yours for 15 minutes; none: nothing is left for you. This, ``verdict``, ``later`` and
        ``undo`` need the token of a person."""
        return self._ask("POST", resource_path("pools", pool_id, "claims"), json={"count": count})

    @operation
    def verdict(self, pool_id: str, pair: int, grade: int | None) -> Flow[dict[str, Any]]:
        """Judge a pair, or change your verdict. ``grade`` None: it cannot be judged."""
        body = {"pair": pair, "grade": grade}
        return self._ask("POST", resource_path("pools", pool_id, "verdicts"), json=body)

    @operation
    def later(self, pool_id: str, pair: int) -> Flow[dict[str, Any]]:
        """Put a pair off: it comes again when nothing else is left."""
        return self._ask("POST", resource_path("pools", pool_id, "later"), json={"pair": pair})

    @operation
    def undo(self, pool_id: str) -> Flow[ClaimedPair]:
        """Take your latest verdict back; its pair is yours again, and the answer."""
        return self._ask("POST", resource_path("pools", pool_id, "undo"), repeatable=False)

    @operation
    def agreement(self, pool_id: str) -> Flow[Agreement]:
        """How far people agree with each other, and models with people."""
        return self._ask("GET", resource_path("pools", pool_id, "agreement"))

    @operation
    def conflicts(self, pool_id: str) -> Flow[dict[str, Any]]:
        """``count`` of the pairs about which people disagree and nobody decided; ``results`` are the first hundred, the
        widest apart first."""
        return self._ask("GET", resource_path("pools", pool_id, "conflicts"))

    @operation
    def adjudicate(self, pool_id: str, pair: int, grade: int | None) -> Flow[dict[str, Any] | None]:
        """Decide a pair's grade, above what its judges said. ``grade`` None takes the decision back."""
        body = {"pair": pair, "grade": grade}
        return self._ask("POST", resource_path("pools", pool_id, "adjudications"), json=body, repeatable=False)

    @operation
    def judge_by_model(self, pool_id: str, model: str, cut_offs: Sequence[float]) -> Flow[ModelJudging]:
        """A job scores the pairs; the ascending ``cut_offs`` are the lowest scores of the grades 1, 2, …"""
        body = {"model": model, "cut_offs": [*cut_offs]}
        return self._ask("POST", resource_path("pools", pool_id, "model-judges"), json=body, repeatable=False)

    @operation
    def model_judges(self, pool_id: str) -> Flow[Sequence[ModelJudging]]:
        """The models that judge the pool, or did."""
        return self._ask("GET", resource_path("pools", pool_id, "model-judges"))

    @operation
    def publish(
        self, pool_id: str, *, sources: Sequence[str] | None = None, accept_models: bool = False
    ) -> Flow[UploadedSet]:
        """The next version of the judgement set. ``sources``: whose verdicts count (``blind``, ``seen``, ``imported``,
        ``model``); with ``model`` only where ``accept_models`` says that you know how far it agrees with people."""
        body = given(sources=list(sources) if sources is not None else None, accept_models=accept_models or None)
        return self._ask("POST", resource_path("pools", pool_id, "publish"), json=body, repeatable=False)

    @listing
    def list(self, **filters: Any) -> Pages[Pool]:
        """Newest first; ``filters`` such as ``state``, ``name`` or ``query_set``."""
        return Pages(Request("GET", resource_path("pools"), params=filters))
