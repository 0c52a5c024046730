"""What comparisons and evaluations share over HTTP: reports as files, intervals."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from assay.api.serializers import StrictSerializer
from scoring.api.job_shapes import refusals
from scoring.api.openapi import READ
from scoring.export.reports import REPORTS

REPORT_ANSWERS: Final = {
    (200, each.content_type.partition(";")[0]): OpenApiTypes.STR for each in REPORTS.values()
} | refusals(*READ, 404, 409, 422)  # fmt: skip
REPORT_EXAMPLE: Final = OpenApiExample(
    "Answer", "# BM25 vs. minilm\nletter,ranking,job,query_id,measure,value\n",
    response_only=True, media_type="text/csv",
)  # fmt: skip


class ReportQuerySerializer(StrictSerializer):
    format = serializers.ChoiceField([(name, each.title) for name, each in REPORTS.items()])


# What the documentation says of both; each adds its own description.
REPORT: Final[dict[str, Any]] = {
    "summary": "Download what was measured as a file",
    "parameters": [ReportQuerySerializer],
    "responses": REPORT_ANSWERS,
    "examples": [REPORT_EXAMPLE],
}


class IntervalSerializer(serializers.Serializer[Any]):
    low = serializers.FloatField()
    high = serializers.FloatField()
