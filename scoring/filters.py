"""What lists can be narrowed by: the same sets serve the API's lists and the pages' tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import django_filters as filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django_filters.fields import IsoDateTimeField

from accounts.models import ApiToken
from accounts.scopes import Scope
from assay.api.sentences import problem
from audit.services import verbs_known
from scoring.models import Document, ScoringModel, Transition
from scoring.models.scoring_model import ModelKind
from scoring.selectors.job_events import PROBLEMS, WORKER
from scoring.selectors.sets import tagged
from scoring.states import DeliveryState, EncodingState, JobState, ModelState, PoolState, SetState, WorkerState

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


class WholeNumberFilter(filters.NumberFilter):
    field_class = forms.IntegerField  # type: ignore[assignment]  # the base is typed for its own field alone


class ModelNameFilter(filters.CharFilter):
    """By a model's own name, or by an alias that points at it now."""

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not value:
            return qs
        named = ScoringModel.objects.filter(Q(name=value) | Q(aliases__name=value)).values("pk")
        rows = qs.filter(**{f"{self.field_name}__in": named})
        return rows.distinct() if self.distinct else rows


def faults_of(filterset: filters.FilterSet) -> Iterator[tuple[str, str, str]]:
    """Of every filter that was given what it cannot take: its name, what is wrong in a sentence, a code."""
    fields, data = filterset.form.fields, filterset.data or {}
    for name, field in fields.items():
        given = data.get(name, "")
        if isinstance(field, forms.NullBooleanField) and given.lower() not in ("", "true", "false"):
            yield name, problem(name, field, given), "invalid"  # to Django it would be neither, and list everything
    for name, (fault, *_) in filterset.form.errors.as_data().items():
        given = (fault.params or {}).get("value", data[name])  # of several the one at fault
        yield name, problem(name, fields[name], given), fault.code or "invalid"


class CreatedFilter(filters.FilterSet):
    created_after = MomentFilter("created_at", "gte", label="Created at or after (ISO 8601)")
    created_before = MomentFilter("created_at", "lt", label="Created before (ISO 8601)")


class JobFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=JobState.choices, label="State")
    model = ModelNameFilter("stages__model", distinct=True, label="Name of a model in it")
    document_set = filters.UUIDFilter(label="Id of its document set")
    query_set = filters.UUIDFilter(label="Id of its query set")
    cloned_from = filters.UUIDFilter(label="Id of the job it was cloned from")


class ComparisonFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    pinned = filters.BooleanFilter(label="Pinned")
    job = filters.UUIDFilter("compared__stage__job", distinct=True, label="Id of a job in it")


class PoolFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.ChoiceFilter(choices=PoolState.choices, label="State")
    query_set = filters.UUIDFilter(label="Id of its query set")


class EvaluationFilter(CreatedFilter):
    job = filters.UUIDFilter("stage__job", label="Id of the job")
    stage = WholeNumberFilter("stage__index", label="Index of the stage in its job")
    query_set = filters.UUIDFilter("stage__job__query_set", label="Id of the query set")
    judgement_set = filters.UUIDFilter(label="Id of the version of the judgement set")
    name = filters.CharFilter("stage__job__name", lookup_expr="icontains", label="Job's name contains")
    measure = filters.CharFilter(method="by_measure", label="Name of a measure in it, such as nDCG@10")
    incomplete = filters.BooleanFilter(label="Not every pair was scored")

    def by_measure(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(measures__contains=[value])


class JobEventFilter(filters.FilterSet):
    entity = filters.ChoiceFilter(choices=[(name, name) for name in ("job", "stage", "chunk")], label="What changed")
    worker = filters.CharFilter(method="by_worker", label="Name of the worker that changed it")
    problems = filters.BooleanFilter(method="by_problems", label="What went wrong (true), or right (false)")

    def by_worker(self, rows: QuerySet[Transition], name: str, value: str) -> QuerySet[Transition]:
        return rows.filter(actor=f"{WORKER}{value}")

    def by_problems(self, rows: QuerySet[Transition], name: str, value: bool) -> QuerySet[Transition]:
        return rows.filter(PROBLEMS) if value else rows.exclude(PROBLEMS)


class UploadedSetFilter(CreatedFilter):
    """Document, query, judgement and run sets."""

    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=SetState.choices, label="State")


class JudgementSetFilter(UploadedSetFilter):
    root = filters.UUIDFilter(label="The id that all versions of a set share")


class EncodingFilter(CreatedFilter):
    document_set = filters.UUIDFilter(label="Id of the document set")
    model = ModelNameFilter("model", label="Name of the model")
    state = filters.MultipleChoiceFilter(choices=EncodingState.choices, label="State")


class TextFilter(filters.FilterSet):
    """Documents and queries."""

    id = filters.CharFilter("external_id", label="Id in the uploaded file")
    text = filters.CharFilter(method="by_text", label="Text contains")
    is_empty = filters.BooleanFilter(label="Without text")

    def by_text(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """No text whose deletion was ordered is found, though its row may still hold it for minutes."""
        parent = "document_set" if rows.model is Document else "query_set"
        return rows.filter(text__icontains=value, **{f"{parent}__texts_delete_requested_at": None})


class QueryFilter(TextFilter):
    tag = filters.CharFilter(method="by_tag", label="One of its tags, as a whole")

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(tagged(value), query_set__texts_delete_requested_at=None)


class JudgementFilter(filters.FilterSet):
    query_id = filters.CharFilter(label="Id of the query")
    document_id = filters.CharFilter(label="Id of the document")
    grade = WholeNumberFilter(label="Grade")


class RunFilter(filters.FilterSet):
    query_id = filters.CharFilter(label="Id of the query")
    document_id = filters.CharFilter(label="Id of the document")


class ModelFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=ModelState.choices, label="State")
    kind = filters.ChoiceFilter(choices=ModelKind.choices, label="Kind")


class ThresholdAdviceFilter(CreatedFilter):
    model = filters.CharFilter("model__name", label="Name of the model")


class ScoreRequestFilter(CreatedFilter):
    model = filters.CharFilter("model_name", label="Name of the model")
    endpoint = filters.CharFilter(label="Endpoint, such as /v1/rerank")
    status_code = WholeNumberFilter(label="HTTP status of the answer")


class WorkerFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    state = filters.MultipleChoiceFilter(choices=WorkerState.choices, label="State")


class TokenFilter(CreatedFilter):
    name = filters.CharFilter(lookup_expr="icontains", label="Name contains")
    enabled = filters.BooleanFilter(label="Not revoked")
    scope = filters.ChoiceFilter(choices=Scope.choices, method="by_scope", label="Scope that it has")

    def by_scope(self, rows: QuerySet[ApiToken], name: str, value: str) -> QuerySet[ApiToken]:
        return rows.filter(scopes__contains=[value])


class AuditEventFilter(filters.FilterSet):
    actor = filters.CharFilter("actor_label", label="Name of the user, or 'token <name>'")
    token = filters.CharFilter("actor_token__public_id", label="Id of the token that was used")
    verb = filters.MultipleChoiceFilter(choices=lambda: [(verb, verb) for verb in verbs_known()], label="Verb")
    target_type = filters.CharFilter(label="Kind of the target, such as scoring.job")
    target_id = filters.CharFilter(label="Id of the target")
    request_id = filters.CharFilter(label="Id of the request")
    at_or_after = MomentFilter("at", "gte", label="At or after (ISO 8601)")
    before = MomentFilter("at", "lt", label="Before (ISO 8601)")


class WebhookDeliveryFilter(CreatedFilter):
    webhook = filters.UUIDFilter(label="Id of the webhook")
    event = filters.CharFilter(label="Event, such as job.completed")
    state = filters.MultipleChoiceFilter(choices=DeliveryState.choices, label="State")
