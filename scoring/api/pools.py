"""``/api/v1/pools``: pairs that people judge, handed out so that no pair gets more judges than wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictBooleanField, StrictIntegerField, StrictSerializer, StrictUUIDField, TextField
from assay.errors import AssayError
from scoring.api.comparisons import ComparedSerializer, stages_named
from scoring.api.judgements import SET as JUDGEMENT_SET
from scoring.api.judgements import JudgementSetDetailSerializer
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet, team_set
from scoring.api.synchronous import validated
from scoring.filters import PoolFilter
from scoring.models import DocumentSet, JudgementSet, JudgingRule, Pool, PoolPair, RunSet, VerdictSource
from scoring.models import QuerySet as Queries
from scoring.models.judgement_set import GRADES_NAMED
from scoring.selectors.pools import DEEPEST, PairShown, pairs_shown, pool_progress, pools_of
from scoring.services.judging import MOST_CLAIMED, pair_put_off, pairs_claim, verdict_give, verdict_undo
from scoring.services.pools import (
    GRADE_CHARACTERS,
    LONGEST_GUIDELINES,
    MOST_STAGES,
    USUAL_DEPTH,
    pool_close,
    pool_create,
    pool_delete,
    pool_open,
)
from scoring.services.publishing import BY_PEOPLE, pool_publish, publication_of
from scoring.states import PoolState

MOST_QUERIES: Final = 10_000
COUNTABLE: Final = [one for one in VerdictSource.values if one != VerdictSource.ADJUDICATED]
# What a field names, its table and what a person calls it.
NAMED: Final[Mapping[str, tuple[Any, str]]] = {
    "run_set": (RunSet, "run set"),
    "query_set": (Queries, "query set"),
    "document_set": (DocumentSet, "document set"),
    "base": (JudgementSet, "judgement set"),
}


class PoolCreateSerializer(StrictSerializer):
    stages = serializers.ListField(
        child=ComparedSerializer(),
        default=list,
        max_length=MOST_STAGES,
        help_text="Rankings of jobs over one query set",
    )
    run_set = StrictUUIDField(required=False, allow_null=True, help_text="An uploaded run, beside stages or alone")
    query_set = StrictUUIDField(required=False, allow_null=True, help_text="Needed without stages")
    document_set = StrictUUIDField(required=False, allow_null=True, help_text="Needed without stages")
    k = StrictIntegerField(default=USUAL_DEPTH, min_value=1, max_value=DEEPEST, help_text="Documents per ranking")
    query_ids = serializers.ListField(
        child=TextField(max_length=200), default=list, max_length=MOST_QUERIES, help_text="Empty: all queries"
    )
    base = StrictUUIDField(required=False, allow_null=True, help_text="Judgements whose pairs are left out")
    name = TextField(default="", max_length=200, help_text="Absent: what it was made of")
    scale = serializers.ListField(
        child=TextField(max_length=GRADE_CHARACTERS), required=False, allow_null=True, min_length=GRADES_NAMED[0],
        max_length=GRADES_NAMED[-1], help_text="Names of the grades 0, 1, …; absent: the base's",
    )  # fmt: skip
    relevant_from = StrictIntegerField(
        required=False, allow_null=True, min_value=1, max_value=5, help_text="The lowest grade that is relevant"
    )
    guidelines = TextField(required=False, allow_null=True, max_length=LONGEST_GUIDELINES)
    quorum = StrictIntegerField(default=1, min_value=1, max_value=5, help_text="Judges per pair")
    rule = serializers.ChoiceField(
        choices=JudgingRule.values, required=False, allow_null=True, help_text="Absent: single, or median of several"
    )


class PoolChangeSerializer(StrictSerializer):
    state = serializers.ChoiceField(choices=PoolState.values, help_text="closed: no pair is handed out")


class ClaimSerializer(StrictSerializer):
    count = StrictIntegerField(default=1, min_value=1, max_value=MOST_CLAIMED)


class PairSerializer(StrictSerializer):
    pair = StrictIntegerField(min_value=1, max_value=2**63 - 1)


class VerdictSerializer(PairSerializer):
    grade = StrictIntegerField(min_value=0, max_value=5, allow_null=True, help_text="null: it cannot be judged")


class PublishSerializer(StrictSerializer):
    sources = serializers.ListField(
        child=serializers.ChoiceField(choices=COUNTABLE),
        default=[str(one) for one in BY_PEOPLE], min_length=1,
        help_text="Whose verdicts count; adjudications always do",
    )  # fmt: skip
    accept_models = StrictBooleanField(
        default=False,
        help_text="Needed with the source 'model' where one judged: you know how far it agrees with people",
    )


class PoolSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    state = state_field(PoolState)()
    query_set = serializers.UUIDField(source="query_set_id")
    document_set = serializers.UUIDField(source="document_set_id")
    base = serializers.UUIDField(source="base_id", allow_null=True, help_text="Its last published version, once there")
    scale = serializers.ListField(child=serializers.CharField())
    relevant_from = serializers.IntegerField()
    guidelines = serializers.CharField()
    quorum = serializers.IntegerField()
    rule = serializers.CharField()
    pair_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class JudgeProgressSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(source="judge.name")
    graded = serializers.IntegerField()
    cannot = serializers.IntegerField(help_text="Pairs that this judge could not judge")


class PoolProgressSerializer(serializers.Serializer[Any]):
    pairs = serializers.IntegerField()
    done = serializers.IntegerField(help_text="Pairs with all their verdicts, or adjudicated")
    mine = serializers.IntegerField(help_text="Pairs that you judged")
    left = serializers.IntegerField(help_text="Pairs that may still be handed to you")
    judges = JudgeProgressSerializer(many=True)


class PublicationSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField(help_text="The version that publishing would make")
    changed = serializers.IntegerField(help_text="Grades that the newest version does not have")
    waiting = serializers.IntegerField(help_text="Pairs with fewer verdicts than the quorum: left out")
    ungraded = serializers.IntegerField(help_text="Pairs of which the verdicts give no grade: left out")


class PoolDetailSerializer(PoolSerializer):
    progress = PoolProgressSerializer()
    publication = PublicationSerializer()


class ClaimedPairSerializer(serializers.Serializer[Any]):
    """Neither where it is from nor what others say of it."""

    pair = serializers.IntegerField(source="pair.pk")
    query_id = serializers.CharField(source="pair.query_id")
    document_id = serializers.CharField(source="pair.document_id")
    query = serializers.CharField(source="query.text")
    narrative = serializers.CharField(help_text="What the query means, if its set says so")
    title = serializers.CharField(source="document.title")
    text = serializers.CharField(source="document.text")


class ClaimedSerializer(serializers.Serializer[Any]):
    pairs = ClaimedPairSerializer(many=True)


class GivenSerializer(serializers.Serializer[Any]):
    pair = serializers.IntegerField(source="pair_id")
    grade = serializers.IntegerField(allow_null=True)
    decided_at = serializers.DateTimeField()


POOL: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a51",
    "name": "First 10 of minilm of Night run",
    "state": "open",
    "query_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a02",
    "document_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a01",
    "base": JUDGEMENT_SET["id"],
    "scale": ["not relevant", "marginal", "relevant", "highly relevant"],
    "relevant_from": 1,
    "guidelines": "Relevant: it answers the question.",
    "quorum": 1,
    "rule": "single",
    "pair_count": 412,
    "created_at": "2026-11-29T20:00:00Z",
}
DETAIL: Final[dict[str, Any]] = {
    **POOL,
    "progress": {
        "pairs": 412, "done": 38, "mine": 38, "left": 374, "judges": [{"name": "ada", "graded": 37, "cannot": 1}]
    },
    "publication": {"version": 2, "changed": 37, "waiting": 0, "ungraded": 1},
}  # fmt: skip
CREATE: Final[dict[str, Any]] = {
    "stages": [{"job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12"}],
    "k": 10,
    "base": JUDGEMENT_SET["id"],
}
CLAIMED: Final[dict[str, Any]] = {
    "pair": 7,
    "query_id": "q1",
    "document_id": "d1",
    "query": "how do I descale a kettle",
    "narrative": "",
    "title": "Kettle",
    "text": "Descale the kettle with citric acid",
}


@extend_schema(tags=["pools"])
class PoolViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = Pool
    filterset_class = PoolFilter
    lookup_value_converter = "uuid"
    serializer_class = PoolSerializer

    def rows(self) -> QuerySet[Pool]:
        return pools_of(self.principal)

    @operation("List the pools", answer=PoolSerializer(many=True), example=POOL, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), PoolSerializer)

    @operation(
        "One pool, with how far its judging is and what publishing it would give",
        answer=PoolDetailSerializer, example=DETAIL, errors=(*READ, 404),
    )  # fmt: skip
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(self._detail(self.found()))

    @operation(
        "Make a pool of the first documents of rankings",
        description="The union of the first `k` of the stages and of the run, without the documents that `base` "
        "grades and without empty ones, in an order that tells nothing of where they are from.",
        request=PoolCreateSerializer, request_example=CREATE, answer=PoolDetailSerializer, example=DETAIL,
        status=201, errors=(*BODY, 404, 409),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        given = validated(PoolCreateSerializer, request)
        fields = {name: value for name, value in given.items() if value is not None}
        stages = stages_named(self.principal, fields.pop("stages"))
        for name, (model, noun) in NAMED.items():
            if name in fields:
                fields[name] = team_set(self.principal, model, fields[name], param=name, noun=noun)
        pool = pool_create(principal=self.principal, stages=stages, **fields)
        place = {"Location": self.reverse_action("detail", kwargs={"pk": pool.pk})}
        return Response(self._detail(self.rows().get(pk=pool.pk)), status=201, headers=place)

    @operation(
        "Close a pool, or open it again",
        request=PoolChangeSerializer, request_example={"state": "closed"},
        answer=PoolDetailSerializer, example={**DETAIL, "state": "closed"}, errors=(*BODY, 404, 409),
    )  # fmt: skip
    def partial_update(self, request: Request, pk: str) -> Response:
        pool, state = self.found(), validated(PoolChangeSerializer, request)["state"]
        (pool_close if state == PoolState.CLOSED else pool_open)(principal=self.principal, pool=pool)
        return Response(self._detail(pool))

    @operation(
        "Delete a pool with its verdicts; what was published stays", answer=None, status=204, errors=(*READ, 404)
    )
    def destroy(self, request: Request, pk: str) -> Response:
        pool_delete(principal=self.principal, pool=self.found())
        return Response(status=204)

    @operation(
        "Take the next pairs to judge",
        description="They are yours for 15 minutes, and handed to nobody beyond the quorum. Pairs that you hold "
        "already come first. An empty list: nothing is left for you.",
        request=ClaimSerializer, request_example={"count": 1},
        answer=ClaimedSerializer, example={"pairs": [CLAIMED]}, errors=(*BODY, 404, 409),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def claims(self, request: Request, pk: str) -> Response:
        pool, count = self.found(), validated(ClaimSerializer, request)["count"]
        pairs = pairs_claim(principal=self.principal, pool=pool, count=count)
        shown: list[PairShown] = pairs_shown(pool, pairs)
        return Response(ClaimedSerializer({"pairs": shown}).data)

    @operation(
        "Judge a pair, or change your verdict",
        request=VerdictSerializer, request_example={"pair": 7, "grade": 2},
        answer=GivenSerializer, example={"pair": 7, "grade": 2, "decided_at": "2026-11-29T20:00:00Z"},
        errors=(*BODY, 404, 409),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def verdicts(self, request: Request, pk: str) -> Response:
        pool, fields = self.found(), validated(VerdictSerializer, request)
        given = verdict_give(principal=self.principal, pair=pair_of(pool, fields["pair"]), grade=fields["grade"])
        return Response(GivenSerializer(given).data)

    @operation(
        "Put a pair off: it comes again when nothing else is left",
        request=PairSerializer, request_example={"pair": 7}, answer=PairSerializer, example={"pair": 7},
        errors=(*BODY, 404, 409),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def later(self, request: Request, pk: str) -> Response:
        pool, fields = self.found(), validated(PairSerializer, request)
        pair_put_off(principal=self.principal, pair=pair_of(pool, fields["pair"]))
        return Response(fields)

    @operation(
        "Take your latest verdict back",
        description="Its pair is yours again and the answer.",
        request=None, answer=ClaimedPairSerializer, example=CLAIMED, errors=(*READ, 404, 409),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        pool = self.found()
        pair = verdict_undo(principal=self.principal, pool=pool)
        return Response(ClaimedPairSerializer(pairs_shown(pool, [pair])[0]).data)

    @operation(
        "Publish the grades as the next version of the judgement set",
        description="The newest version stays as it is; evaluations that use it do not change. Grades of models are "
        "counted only with `accept_models`: without it the refusal says how far each agrees with people, as "
        "`GET …/agreement` does.",
        request=PublishSerializer, request_example={"sources": ["blind"]}, answer=JudgementSetDetailSerializer,
        example=JUDGEMENT_SET, status=201, errors=(*BODY, 404, 409),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def publish(self, request: Request, pk: str) -> Response:
        pool, fields = self.found(), validated(PublishSerializer, request)
        published = pool_publish(principal=self.principal, pool=pool, **fields)
        return Response(JudgementSetDetailSerializer(published).data, status=201)

    def _detail(self, pool: Pool) -> dict[str, Any]:
        progress = pool_progress(pool, self.principal.user)
        found = {
            "progress": PoolProgressSerializer(progress).data,
            "publication": PublicationSerializer(publication_of(pool)).data,
        }
        return {**PoolSerializer(pool).data, **found}


def pair_of(pool: Pool, pk: int) -> PoolPair:
    """Raises AssayError 404 ``no_such_pair``."""
    pair = PoolPair.objects.select_related("pool").filter(pool=pool, pk=pk).first()
    if pair is None:
        message = f"Pool '{pool.name}' has no pair {pk}; take one with POST …/claims."
        raise AssayError("no_such_pair", message, status=404, param="pair")
    return pair
