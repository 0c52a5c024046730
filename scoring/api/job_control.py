"""What clients do with a job under way, and its log."""

from __future__ import annotations

from typing import Any, Final

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictIntegerField, StrictSerializer, TextField
from assay.errors import AssayError
from assay.token_form import holds_token
from scoring.api import job_shapes as shapes
from scoring.api.event_stream import EventStreamRenderer, event_stream
from scoring.api.openapi import BODY, LISTED, READ, header, operation
from scoring.api.resources import Pagination, ResourceViewSet
from scoring.api.synchronous import validated
from scoring.filters import JobEventFilter
from scoring.models import Job
from scoring.selectors.job_events import job_events, job_log, job_transitions
from scoring.services.job_control import job_cancel, job_clone, job_pause, job_resume
from scoring.services.job_retry import job_retry
from scoring.services.jobs import job_change, job_delete
from scoring.states import JobState

MAX_KEY: Final = 200
IDEMPOTENCY_KEY: Final = header("Idempotency-Key", "At most 200 characters; makes a repeated request safe")
MOVED: Final = (*READ, 404, 409)


class OldestFirst(Pagination):
    ordering = "id"


class JobChangeSerializer(StrictSerializer):
    name = TextField(required=False, max_length=200)
    priority = StrictIntegerField(required=False, min_value=-100, max_value=100, help_text="Higher runs first")
    complete_within = StrictIntegerField(
        required=False, allow_null=True, min_value=1, max_value=2**31 - 1,
        help_text="Seconds since the job joined the queue; null: no limit",
    )  # fmt: skip


class EventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    entity = serializers.CharField(help_text="job, stage or chunk")
    what = serializers.CharField(help_text="Which one, in words")
    from_state = serializers.CharField(help_text="Empty: it was made")
    to_state = serializers.CharField(help_text="The same as `from_state`: something else changed, see `detail`")
    actor = serializers.CharField()
    worker = serializers.CharField(allow_null=True)
    reason = serializers.CharField(help_text="Such as why a chunk came back")
    attempt = serializers.IntegerField(allow_null=True, help_text="Faults of the chunk so far, or attempt of the job")
    error = serializers.CharField()
    detail = serializers.DictField()


EVENT: Final[dict[str, Any]] = {
    "id": 4711,
    "at": "2026-11-29T20:00:07Z",
    "entity": "chunk",
    "what": "stage 1, chunk 3",
    "from_state": "leased",
    "to_state": "pending",
    "actor": "reconciler",
    "worker": None,
    "reason": "worker_crashed",
    "attempt": 1,
    "error": "",
    "detail": {"attempts": 1, "error": ""},
}


class JobControlViewSet(ResourceViewSet):
    """The part of ``/api/v1/jobs`` that moves jobs."""

    @operation(
        "Change a job's name, priority or time limit",
        description="The name at any time, the others until the job has ended. What is not given is kept.",
        request=JobChangeSerializer,
        request_example={"priority": 10},
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "priority": 10},
        errors=(*BODY, 404, 409),
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        fields = validated(JobChangeSerializer, request)
        return _answer(job_change(principal=self.principal, job=self.found(), **fields))

    @operation("Delete an ended job with its results and its log", answer=None, status=204, errors=MOVED)
    def destroy(self, request: Request, pk: str) -> Response:
        job_delete(principal=self.principal, job=self.found())
        return Response(status=204)

    @operation(
        "Pause a job",
        description="Nothing more of it is given to workers, and what they hold comes back within a micro-batch. Until "
        "then `progress.waiting` is `pausing`. The time limit goes on running.",
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "state": JobState.PAUSED},
        errors=MOVED,
    )
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        return _answer(job_pause(principal=self.principal, job=self.found()))

    @operation(
        "Resume a paused job, at its old place in the queue",
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "state": JobState.QUEUED},
        errors=(*MOVED, 429),
    )
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return _answer(job_resume(principal=self.principal, job=self.found()))

    @operation(
        "Cancel a job; what is scored stays",
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "state": JobState.CANCELLING},
        errors=MOVED,
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        return _answer(job_cancel(principal=self.principal, job=self.found()))

    @operation(
        "Queue an ended job again with what is unfinished",
        description="Its failed and cancelled chunks get all their attempts back; what is scored stays. A stage that "
        "takes its candidates from one that changes is scored anew.",
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "state": JobState.QUEUED, "attempt": 2},
        errors=(*MOVED, 413, 422, 429),
    )
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        return _answer(job_retry(principal=self.principal, job=self.found()))

    @operation(
        "Submit the same job again, with the models as they are now",
        answer=shapes.JobDetailSerializer,
        example={**shapes.JOB_DETAIL, "state": JobState.QUEUED, "cloned_from": shapes.SET_ID},
        status=201,
        other_answers={200: shapes.JobDetailSerializer},
        errors=(*MOVED, 413, 422, 429),
        parameters=(IDEMPOTENCY_KEY,),
    )
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        key = idempotency_key(request)
        return self.submitted(*job_clone(principal=self.principal, job=self.found(), idempotency_key=key))

    @operation(
        "Every change of a job's state, oldest first",
        answer=shapes.LogSerializer(many=True),
        example=shapes.LOG,
        errors=LISTED,
    )
    @action(detail=True, pagination_class=OldestFirst, filterset_class=None)
    def log(self, request: Request, pk: str) -> Response:
        return self.paged(job_log(self.found()), shapes.LogSerializer)

    @operation(
        "Everything that happened to a job, its stages and its chunks, newest first",
        description="With `Accept: text/event-stream` they come as server-sent events instead, oldest first and all of "
        "them, after the one that `Last-Event-ID` names: `event` is the entity, `data` what `results` holds here. New "
        "ones follow as they happen; an event named `end` with the job's state is the last. A server ends a stream "
        "after a few minutes: ask again with the last id.",
        answer=EventSerializer(many=True),
        example=EVENT,
        errors=LISTED,
    )
    @extend_schema(filters=True)
    @action(detail=True, filterset_class=JobEventFilter)
    def events(self, request: Request, pk: str) -> HttpResponseBase:
        if isinstance(request.accepted_renderer, EventStreamRenderer):
            return event_stream(self.found(), self.principal, after=last_event_id(request), serializer=EventSerializer)
        page = self.paginate_queryset(self.filter_queryset(job_transitions(self.found()))) or []
        return self.get_paginated_response(EventSerializer(job_events(page), many=True).data)

    def get_renderers(self) -> list[BaseRenderer]:
        streamed = self.action == "events" and not getattr(self, "swagger_fake_view", False)
        return [*super().get_renderers(), *([EventStreamRenderer()] if streamed else [])]

    def submitted(self, job: Job, is_new: bool) -> Response:
        place = {"Location": self.reverse_action("detail", kwargs={"pk": job.pk})}
        return Response(shapes.JobDetailSerializer(job).data, status=201 if is_new else 200, headers=place)


def _answer(job: Job) -> Response:
    return Response(shapes.JobDetailSerializer(job).data)


def last_event_id(request: Request) -> int:
    given = request.headers.get("Last-Event-ID", "0")
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise AssayError(
            "bad_last_event_id", f"The Last-Event-ID is {given[:40]!r}; give the id of an event of this job.",
            status=422, param="Last-Event-ID",
        )  # fmt: skip
    return int(given)


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    usable = key is None or (key.isascii() and key.isprintable() and 1 <= len(key) <= MAX_KEY and not holds_token(key))
    if not usable:
        raise AssayError(
            "bad_idempotency_key",
            f"The Idempotency-Key must have 1 to {MAX_KEY} printable ASCII characters, and be no API token.",
            status=422, param="Idempotency-Key",
        )  # fmt: skip
    return key
