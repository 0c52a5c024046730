"""What lists can be narrowed by: the same sets serve the API's lists and the pages' tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import django_filters as filters
from django.core.exceptions import ValidationError
from django_filters.fields import IsoDateTimeField

from scoring.models.scoring_model import ModelKind
from scoring.states import JobState, ModelState, SetState, WorkerState

YEARS: Final = range(1970, 3000)


class MomentField(IsoDateTimeField):
    """A moment that can be told in every time zone: at the ends of the calendar the conversion itself fails."""

    def clean(self, value: Any) -> datetime | None:
        moment: datetime | None = super().clean(value)
        if moment is not None and moment.year not in YEARS:
            raise ValidationError(f"The year must be between {YEARS[0]} and {YEARS[-1]}.", code="invalid")
        return moment


class MomentFilter(filters.IsoDateTimeFilter):
    field_class = MomentField


class CreatedFilter(filters.FilterSet):
    created_after = MomentFilter("created_at", "gte", label="Created at or after (ISO 8601)")
    created_before = MomentFilter("created_at", "lt", label="Created before (ISO 8601)")


class JobFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=JobState.choices, label="State")
    model = filters.CharFilter("stages__model__name", distinct=True, label="Name of a model in it")


class UploadedSetFilter(CreatedFilter):
    """Document, query, judgement and run sets."""

    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=SetState.choices, label="State")


class TextFilter(filters.FilterSet):
    """Documents and queries."""

    id = filters.CharFilter("external_id", label="Id in the uploaded file")
    text = filters.CharFilter(lookup_expr="icontains", label="Text contains")
    is_empty = filters.BooleanFilter(label="Without text")


class JudgementFilter(filters.FilterSet):
    query_id = filters.CharFilter(label="Id of the query")
    document_id = filters.CharFilter(label="Id of the document")
    grade = filters.NumberFilter(label="Grade")


class RunFilter(filters.FilterSet):
    query_id = filters.CharFilter(label="Id of the query")
    document_id = filters.CharFilter(label="Id of the document")


class ModelFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=ModelState.choices, label="State")
    kind = filters.ChoiceFilter(choices=ModelKind.choices, label="Kind")


class ScoreRequestFilter(CreatedFilter):
    model = filters.CharFilter("model_name", label="Name of the model")
    endpoint = filters.CharFilter(label="Endpoint, such as /v1/rerank")
    status_code = filters.NumberFilter(label="HTTP status of the answer")


class WorkerFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=WorkerState.choices, label="State")
