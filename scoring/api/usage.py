"""``/api/v1/usage``: what the team used, by day, model, token and source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from assay.api.serializers import StrictSerializer
from scoring.api.openapi import READ, operation
from scoring.api.resources import query_of
from scoring.models import UsageSource
from scoring.selectors.usage import GROUPS, usage_totals

MOST_DAYS: Final = 366
USUAL_DAYS: Final = 30


class UsageQuerySerializer(StrictSerializer):
    to = serializers.DateField(required=False, help_text="The last day, of UTC; absent: today")
    group_by = serializers.CharField(
        required=False, default="day",
        help_text=f"Any of {', '.join(GROUPS)}, separated by commas; empty: one line for everything",
        allow_blank=True,
    )  # fmt: skip

    def get_fields(self) -> dict[str, Any]:
        first = serializers.DateField(
            required=False, help_text=f"The first day, of UTC; absent: {USUAL_DAYS} days up to the last one"
        )
        return {"from": first, **super().get_fields()}  # "from" is no name that a class body could use

    def validate_group_by(self, given: str) -> list[str]:
        groups = [name.strip() for name in given.split(",") if name.strip()]
        for name in groups:
            if name not in GROUPS:
                raise serializers.ValidationError(f"'{name}' is none of: {', '.join(GROUPS)}.")
        if len(groups) != len(set(groups)):
            raise serializers.ValidationError("A name is given twice; give each once.")
        return groups

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        last = attrs.setdefault("to", datetime.now(UTC).date())
        if (last - last.min).days < USUAL_DAYS:
            raise serializers.ValidationError({"to": [f"{last} is before any usage; give a later day."]})
        first = attrs.setdefault("from", last - timedelta(days=USUAL_DAYS - 1))
        if not 0 <= (last - first).days < MOST_DAYS:
            message = f"From {first} to {last} must be 1 to {MOST_DAYS} days; ask for the years one by one."
            raise serializers.ValidationError({"from": [message]})
        return attrs


class UsageLineSerializer(serializers.Serializer[Any]):
    """Two fields are named like attributes of serializers, which declared fields do not touch."""

    day = serializers.DateField(required=False, help_text="Present if grouped by day; so are the next three")
    model = serializers.CharField(required=False)
    token = serializers.CharField(required=False, allow_null=True, help_text="Its name; null: people in the browser")
    source = serializers.ChoiceField(UsageSource.choices, required=False)  # type: ignore[assignment]
    requests = serializers.IntegerField(help_text="Synchronous requests, and stages of jobs that ended")
    errors = serializers.IntegerField(  # type: ignore[assignment]
        help_text="Refused requests, and stages of jobs with pairs that failed"
    )
    documents = serializers.IntegerField(help_text="That got a score, once for each query")
    tokens = serializers.IntegerField()
    compute_seconds = serializers.FloatField(help_text="Of the engine's forward passes and MaxSim")


class UsageReportSerializer(serializers.Serializer[Any]):
    group_by = serializers.ListField(child=serializers.ChoiceField(list(GROUPS)))
    to = serializers.DateField()
    results = UsageLineSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        return {"from": serializers.DateField(), **super().get_fields()}


EXAMPLE: Final[dict[str, Any]] = {
    "from": "2026-11-01",
    "to": "2026-11-30",
    "group_by": ["day", "model"],
    "results": [
        {
            "day": "2026-11-29",
            "model": "minilm",
            "requests": 1200,
            "errors": 3,
            "documents": 118400,
            "tokens": 9210000,
            "compute_seconds": 412.5,
        }
    ],
}


class UsageView(APIView):
    required_scope: ClassVar[str] = "score"

    @operation(
        "What the team used",
        answer=UsageReportSerializer,
        example=EXAMPLE,
        errors=(*READ, 422),
        parameters=[UsageQuerySerializer],
        operation_id="usage",
        description="Requests and jobs by day of UTC, at most a minute old. A day is final an hour after its end; "
        "deleting requests or jobs takes nothing away.",
    )
    def get(self, request: Request) -> Response:
        query = query_of(request, UsageQuerySerializer)
        results = usage_totals(
            team=principal_of(request).team, first=query["from"], last=query["to"], group_by=query["group_by"]
        )
        return Response({**query, "results": results})
