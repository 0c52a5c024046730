"""The stages of a job as the API takes and gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from assay.api.principal import Principal
from assay.api.serializers import StrictIntegerField, StrictSerializer, StrictUUIDField, TextField
from assay.errors import AssayError
from scoring.api.openapi import state_field
from scoring.api.resources import team_set
from scoring.models import RunSet, Stage, StageMethod
from scoring.selectors.models import RERANKERS, model_for_request
from scoring.services.stage_plan import MAX_KEPT, MAX_RETRIEVED, MAX_STAGES, StagePlan
from scoring.states import StageState


class StagePlanSerializer(StrictSerializer):
    aliases: ClassVar[Mapping[str, str]] = {"top_n": "top_k"}

    method = serializers.ChoiceField(
        StageMethod.choices, required=False, help_text="Absent: run where a run_set is given, else model"
    )
    model = TextField(
        required=False, allow_null=True, allow_blank=False, help_text="A registered name; absent: the default model"
    )
    run_set = StrictUUIDField(required=False, allow_null=True, help_text="An uploaded run, for the method run")
    source = StrictIntegerField(  # type: ignore[assignment]  # of the class only until DRF has collected its fields
        required=False, allow_null=True, min_value=0, max_value=MAX_STAGES - 1,
        help_text="Index of the earlier stage whose documents it scores; absent: all documents",
    )  # fmt: skip
    top_k = StrictIntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_KEPT,
        help_text="Documents kept per query; absent or null: all. BM25 needs it",
    )  # fmt: skip


class CandidatesSerializer(StrictSerializer):
    """One of the two."""

    bm25 = StrictIntegerField(
        required=False, min_value=1, max_value=MAX_RETRIEVED, help_text="As many documents per query as BM25 finds best"
    )
    run_set = StrictUUIDField(required=False, help_text="What an uploaded run lists for each query")

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if len(fields) != 1:
            raise serializers.ValidationError("Give either bm25 or run_set; leave candidates out for all documents.")
        return fields


class StageSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="What `stage` and `source` name it by")
    name = serializers.SerializerMethodField(help_text="The model, the run, or BM25")
    method = serializers.ChoiceField(StageMethod.choices)
    model = serializers.CharField(source="model.name", default=None, allow_null=True)
    model_revision = serializers.CharField()
    run_set = serializers.UUIDField(source="run_set_id", allow_null=True)
    source = serializers.IntegerField(  # type: ignore[assignment]
        source="source.index", default=None, allow_null=True
    )
    top_k = serializers.IntegerField(allow_null=True)
    state = state_field(StageState)()
    pair_count = serializers.IntegerField(help_text="An upper bound until its candidates are known")
    settings = serializers.DictField(help_text="What a score depends on, as it was when the job was submitted")
    statistics = serializers.DictField(help_text="Written when the stage ends; empty before")
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(str)
    def get_name(self, stage: Stage) -> str:
        return str(stage)


def plans_of(fields: Mapping[str, Any], principal: Principal) -> Sequence[StagePlan]:
    """``stages`` as listed, or the short form: ``model`` and ``top_k``, after ``candidates`` where these are given."""
    if "stages" not in fields:
        model = model_for_request(principal=principal, name=fields.get("model"), kinds=RERANKERS)
        first = _candidates(fields.get("candidates") or {}, principal)
        return [*first, StagePlan(model=model, source=0 if first else None, top_k=fields.get("top_k"))]
    if short := [name for name in ("model", "top_k", "candidates") if fields.get(name) is not None]:
        raise AssayError(
            "given_twice",
            f"'{short[0]}' is the short form of 'stages', and both were given; write it into the stages.",
            status=422,
            param=short[0],
        )
    return [_plan(given, f"stages[{index}].", principal) for index, given in enumerate(fields["stages"])]


@contextmanager
def named_as_given(fields: Mapping[str, Any]) -> Iterator[None]:
    """A refusal of ``stages[1].top_k`` names the field of the short form, if that is what the client wrote."""
    try:
        yield
    except AssayError as refusal:
        stage, _, name = (refusal.param or "").partition(".")
        if stage.startswith("stages[") and "stages" not in fields:
            of_candidates = bool(fields.get("candidates")) and stage == "stages[0]"
            own = {"top_k": "candidates.bm25", "run_set": "candidates.run_set"} if of_candidates else {}
            refusal.param = own.get(name, name)
        raise


def _candidates(given: Mapping[str, Any], principal: Principal) -> list[StagePlan]:
    if "bm25" in given:
        return [StagePlan(method=StageMethod.BM25, top_k=given["bm25"])]
    if "run_set" in given:
        run_set = team_set(principal, RunSet, given["run_set"], param="candidates.run_set", noun="run")
        return [StagePlan(method=StageMethod.RUN, run_set=run_set)]
    return []


def _plan(given: Mapping[str, Any], where: str, principal: Principal) -> StagePlan:
    run_set = None
    if given.get("run_set"):
        run_set = team_set(principal, RunSet, given["run_set"], param=f"{where}run_set", noun="run")
    method = StageMethod(given.get("method") or (StageMethod.RUN if run_set else StageMethod.MODEL))
    model = None
    if method == StageMethod.MODEL or given.get("model"):
        try:
            model = model_for_request(principal=principal, name=given.get("model"), kinds=RERANKERS)
        except AssayError as refusal:
            refusal.param = f"{where}model"
            raise
    return StagePlan(method=method, model=model, run_set=run_set, source=given.get("source"), top_k=given.get("top_k"))


STAGE: Final[dict[str, Any]] = {
    "index": 1,
    "name": "minilm",
    "method": "model",
    "model": "minilm",
    "model_revision": "9f2c6e0b1d4a",
    "run_set": None,
    "source": 0,
    "top_k": 100,
    "state": "running",
    "pair_count": 864,
    "settings": {"model": "minilm", "kind": "bi-encoder", "dtype": "auto", "truncation": "document"},
    "statistics": {},
    "started_at": "2026-11-29T20:00:01Z",
    "finished_at": None,
}
BM25_STAGE: Final[dict[str, Any]] = {
    **STAGE,
    "index": 0,
    "name": "BM25",
    "method": "bm25",
    "model": None,
    "model_revision": "",
    "source": None,
    "top_k": 72,
    "state": "done",
    "settings": {"variant": "lucene", "k1": 1.5, "b": 0.75, "stop_words": "english", "scale": "BM25"},
    "statistics": {"pairs": {"ok": 864, "truncated": 0, "empty": 0, "failed": 0}, "not_scored": 0, "seconds": 0.1},
    "finished_at": "2026-11-29T20:00:01Z",
}
