"""``/api/v1/pools/{id}/…``: how far its judges agree, what they do not agree about, and models that judge it."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from assay.api.serializers import StrictIntegerField, StrictNumberField, StrictSerializer, TextField
from scoring.api.openapi import BODY, READ, operation
from scoring.api.resources import refuse_unknown
from scoring.api.synchronous import validated
from scoring.models import ModelJudging, Pool, PoolPair
from scoring.selectors.agreement import Conflict, TwoJudges, conflicts_queue, conflicts_shown, pool_agreement
from scoring.selectors.models import model_for_request
from scoring.selectors.pools import pools_of
from scoring.services.adjudication import adjudication_withdraw, pair_adjudicate
from scoring.services.model_judges import JUDGES, model_judge_ask

CONFLICTS_TOLD: Final = 100


class SetAgreementSerializer(serializers.Serializer[Any]):
    doubly_judged = serializers.IntegerField(help_text="Pairs with two grades or more")
    raw = serializers.FloatField(allow_null=True, help_text="Of all two grades of one pair, the share that is the same")
    alpha = serializers.FloatField(allow_null=True, help_text="Krippendorff's, ordinal; null: `sentence` says why")
    distribution = serializers.DictField(child=serializers.IntegerField(), help_text="Grades given, by grade")
    sentence = serializers.CharField()


class TwoJudgesSerializer(serializers.Serializer[Any]):
    first = serializers.CharField(source="first.name")
    second = serializers.CharField(source="second.name", default=None, allow_null=True, help_text="null: all people")
    n = serializers.IntegerField(source="found.n", help_text="Pairs that both graded")
    raw = serializers.FloatField(source="found.raw", allow_null=True)
    kappa = serializers.FloatField(
        source="found.kappa", allow_null=True, help_text="Quadratic-weighted; null: `sentence` says why"
    )
    table = serializers.SerializerMethodField(help_text="Pairs by the grade of the first (row) and the second (column)")
    sentence = serializers.CharField(source="found.sentence")

    def get_table(self, two: TwoJudges) -> list[list[int]]:
        counts: list[list[int]] = two.found.table.tolist()
        return counts


class AgreementSerializer(serializers.Serializer[Any]):
    people = SetAgreementSerializer()
    two = TwoJudgesSerializer(many=True, help_text="Each two people")
    models = TwoJudgesSerializer(many=True, help_text="Each model with all people by the pool's rule, and with each")
    conflicts = serializers.IntegerField(help_text="Pairs with different grades that nobody decided")
    serious = serializers.IntegerField(help_text="Of these, two grades apart or more")


class GradeSerializer(serializers.Serializer[Any]):
    judge = serializers.CharField(source="judge.name")
    source = serializers.CharField()  # type: ignore[assignment]
    grade = serializers.IntegerField(allow_null=True, help_text="null: it cannot be judged")


class ConflictSerializer(serializers.Serializer[Any]):
    pair = serializers.IntegerField(source="pair.pk")
    query_id = serializers.CharField(source="pair.query_id")
    document_id = serializers.CharField(source="pair.document_id")
    spread = serializers.IntegerField()
    verdicts = GradeSerializer(many=True)


class ConflictsSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    results = ConflictSerializer(many=True, help_text=f"The first {CONFLICTS_TOLD}, the widest spread first")


class AdjudicationSerializer(StrictSerializer):
    pair = StrictIntegerField(min_value=1, max_value=2**63 - 1)
    grade = StrictIntegerField(min_value=0, max_value=5, allow_null=True, help_text="null: take the decision back")


class ModelJudgeSerializer(StrictSerializer):
    model = TextField(help_text="A registered generative model or cross-encoder")
    cut_offs = serializers.ListField(
        child=StrictNumberField(), min_length=1, max_length=5,
        help_text="Ascending: the lowest scores of the grades 1, 2, … of the pool's scale",
    )  # fmt: skip


class ModelJudgingSerializer(serializers.Serializer[Any]):
    judge = serializers.CharField(source="judge.name")
    model = serializers.CharField(source="judge.model.name")
    revision = serializers.CharField(source="judge.model_revision")
    prompt = serializers.CharField(source="judge.prompt", help_text="The model's template; empty: its own")
    cut_offs = serializers.ListField(child=serializers.FloatField())
    job = serializers.UUIDField(source="job_id", allow_null=True, help_text="Which scores the pairs; null: deleted")
    verdicts = serializers.IntegerField()
    stored_at = serializers.DateTimeField(allow_null=True, help_text="null: its job has not ended")


TWO: Final = {
    "first": "ada",
    "second": "grace",
    "n": 12,
    "raw": 0.75,
    "kappa": 0.8125,
    "table": [[4, 1, 0, 0], [1, 2, 0, 0], [0, 0, 2, 1], [0, 0, 0, 1]],
    "sentence": "",
}
AGREEMENT: Final[dict[str, Any]] = {
    "people": {
        "doubly_judged": 12,
        "raw": 0.75,
        "alpha": 0.8192,
        "distribution": {"0": 10, "1": 6, "2": 5, "3": 3},
        "sentence": "",
    },
    "two": [TWO],
    "models": [{**TWO, "first": "judge-lm 9f2c6e0b", "second": None}],
    "conflicts": 3,
    "serious": 0,
}
CONFLICTS: Final[dict[str, Any]] = {
    "count": 1,
    "results": [
        {
            "pair": 7,
            "query_id": "q1",
            "document_id": "d1",
            "spread": 2,
            "verdicts": [
                {"judge": "ada", "source": "blind", "grade": 3},
                {"judge": "grace", "source": "blind", "grade": 1},
            ],
        }
    ],
}
JUDGING: Final[dict[str, Any]] = {
    "judge": "judge-lm 9f2c6e0b",
    "model": "judge-lm",
    "revision": "9f2c6e0b1d4a",
    "prompt": "",
    "cut_offs": [0.25, 0.5, 0.75],
    "job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12",
    "verdicts": 0,
    "stored_at": None,
}


class OfPoolView(APIView):
    required_scope: ClassVar[str] = "jobs"

    def pool(self, pk: uuid.UUID) -> Pool:
        pool = pools_of(principal_of(self.request)).filter(pk=pk).first()
        if pool is None:
            raise Http404
        refuse_unknown(self.request, ())
        return pool


@extend_schema(tags=["pools"])
class PoolAgreementView(OfPoolView):
    @operation(
        "How far the judges of a pool agree",
        description="Krippendorff's alpha over all people, quadratic-weighted kappa of each two, models apart from "
        "people. Under ten pairs with two grades no coefficient is told. Grades count that were given without seeing "
        "ranks.",
        answer=AgreementSerializer, example=AGREEMENT, errors=(*READ, 404),
    )  # fmt: skip
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        return Response(AgreementSerializer(pool_agreement(self.pool(pk))).data)


@extend_schema(tags=["pools"])
class PoolConflictsView(OfPoolView):
    @operation(
        "Pairs about which people disagree and nobody has decided",
        answer=ConflictsSerializer, example=CONFLICTS, errors=(*READ, 404),
    )  # fmt: skip
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        pool = self.pool(pk)
        queue = conflicts_queue(pool)
        shown: list[Conflict] = conflicts_shown(pool, queue[:CONFLICTS_TOLD])
        return Response({"count": len(queue), "results": ConflictSerializer(shown, many=True).data})


@extend_schema(tags=["pools"])
class PoolAdjudicationView(OfPoolView):
    @operation(
        "Decide the grade of a pair, above what its judges said",
        request=AdjudicationSerializer, request_example={"pair": 7, "grade": 2},
        answer=GradeSerializer, example={"judge": "ada", "source": "adjudicated", "grade": 2},
        other_answers={204: None}, errors=(*BODY, 404),
    )  # fmt: skip
    def post(self, request: Request, pk: uuid.UUID) -> Response:
        pool, principal = self.pool(pk), principal_of(request)
        fields = validated(AdjudicationSerializer, request)
        pair = get_object_or_404(PoolPair.objects.select_related("pool"), pk=fields["pair"], pool=pool)
        if fields["grade"] is None:
            adjudication_withdraw(principal=principal, pair=pair)
            return Response(status=204)
        decided = pair_adjudicate(principal=principal, pair=pair, grade=fields["grade"])
        return Response(GradeSerializer(decided).data)


@extend_schema(tags=["pools"])
class PoolModelJudgesView(OfPoolView):
    @operation(
        "List the models that judge a pool, or did",
        operation_id="api_v1_pools_model_judges_list",
        answer=ModelJudgingSerializer(many=True), example=JUDGING, errors=(*READ, 404),
    )  # fmt: skip
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        rows = ModelJudging.objects.filter(pool=self.pool(pk)).select_related("judge__model")
        return Response(ModelJudgingSerializer(rows, many=True).data)

    @operation(
        "Let a model judge the pairs of a pool",
        description="A job scores them; when it has ended, the cut-offs make grades of the scores. They are a model's: "
        "publishing leaves them out unless it is told otherwise.",
        operation_id="api_v1_pools_model_judges_create",
        request=ModelJudgeSerializer, request_example={"model": "judge-lm", "cut_offs": [0.25, 0.5, 0.75]},
        answer=ModelJudgingSerializer, example=JUDGING, status=201, errors=(*BODY, 404, 409, 429),
    )  # fmt: skip
    def post(self, request: Request, pk: uuid.UUID) -> Response:
        pool, principal = self.pool(pk), principal_of(request)
        fields = validated(ModelJudgeSerializer, request)
        model = model_for_request(principal=principal, name=fields["model"], kinds=JUDGES)
        asked = model_judge_ask(principal=principal, pool=pool, model=model, cut_offs=fields["cut_offs"])
        return Response(ModelJudgingSerializer(asked).data, status=201)
