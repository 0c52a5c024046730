"""Lists in OpenAI's shape: ``after`` the last id of the page before, ``limit``, ``order``."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from assay.api.serializers import StrictSerializer, TextField
from assay.errors import AssayError
from scoring.services.batch_files import pk_of

MOST = 100


class ListQuerySerializer(StrictSerializer):
    after = TextField(required=False, help_text="The last id of the page before")
    limit = serializers.IntegerField(default=20, min_value=1, max_value=MOST)


def list_answer(name: str, row: type[serializers.Serializer[Any]]) -> Any:
    fields = {
        "object": serializers.CharField(),
        "data": row(many=True),
        "first_id": serializers.CharField(allow_null=True),
        "last_id": serializers.CharField(allow_null=True),
        "has_more": serializers.BooleanField(),
    }
    return inline_serializer(f"{name}List", fields)


def listed(
    rows: QuerySet[Any], query: dict[str, Any], serializer: type[serializers.Serializer[Any]], *, prefix: str
) -> dict[str, Any]:
    """One page, the newest first. Raises AssayError 404 for an ``after`` that is no id of such a list."""
    if "after" in query:
        pk = pk_of(query["after"], prefix)
        if pk is None:
            message = f"after is {query['after'][:80]!r}; give the last id of the page before."
            raise AssayError("not_found", message, status=404, param="after")
        rows = rows.filter(pk__lt=pk)
    found = list(rows.order_by("-pk")[: query["limit"] + 1])
    data = serializer(found[: query["limit"]], many=True).data
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(found) > query["limit"],
    }
