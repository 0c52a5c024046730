"""Lines of request batches: leased, answered as their endpoint would answer them, stored.

A line is answered by the endpoint's own view, with the rights that the batch's maker has at that time: its answer is
the one that a request would have got. A line whose process died is answered again when its lease has ended.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.handlers.wsgi import WSGIRequest
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import resolve
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from accounts.selectors import token_found
from accounts.services import is_let_in
from scoring.ids import new_id
from scoring.models import BatchLine
from scoring.states import BatchState, LineState

PASSING: Final = (429, 503, 504)  # the line is tried again, until the batch expires
PAUSE: Final = timedelta(seconds=5)


def lines_lease(limit: int) -> list[BatchLine]:
    """The next lines of batches in progress, the oldest batch first, for LEASE_SECONDS."""
    now = timezone.now()
    free = Q(state=LineState.PENDING) & (Q(not_before=None) | Q(not_before__lte=now))
    lapsed = Q(state=LineState.LEASED, lease_expires_at__lt=now)
    open_batch = Q(batch__state=BatchState.IN_PROGRESS, batch__expires_at__gt=now)
    with transaction.atomic():
        rows = BatchLine.objects.filter(free | lapsed, open_batch).order_by("batch", "number")
        rows = rows.select_related("batch__token", "batch__created_by")
        lines = list(rows.select_for_update(skip_locked=True, of=("self",))[:limit])
        for line in lines:
            line.state, line.lease_token, line.lease_expires_at = LineState.LEASED, uuid.uuid4(), _lease_end()
        BatchLine.objects.bulk_update(lines, ("state", "lease_token", "lease_expires_at"))
    return lines


def lines_extend(lines: Iterable[BatchLine]) -> None:
    """Somebody is still at work on them: call it more often than leases end."""
    BatchLine.objects.filter(lease_token__in=[line.lease_token for line in lines], state=LineState.LEASED).update(
        lease_expires_at=_lease_end()
    )


def line_answer(line: BatchLine) -> LineState:
    """Answer a leased line and store that; one refused for the moment waits. Returns the state it is in then."""
    status, body, request_id = _answered(line)
    if status in PASSING:
        line_release(line, after=PAUSE)
        return LineState.PENDING
    state = LineState.DONE if 200 <= status < 300 else LineState.FAILED
    _leased(line).update(state=state, status_code=status, answer=body, request_id=request_id, lease_token=None)
    return state


def line_release(line: BatchLine, *, after: timedelta = timedelta()) -> None:
    _leased(line).update(state=LineState.PENDING, lease_token=None, not_before=timezone.now() + after)


def _lease_end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)


def _leased(line: BatchLine) -> QuerySet[BatchLine]:
    """The row while the lease is still this one: who lost it changes nothing."""
    return BatchLine.objects.filter(pk=line.pk, state=LineState.LEASED, lease_token=line.lease_token)


def _answered(line: BatchLine) -> tuple[int, Any, str]:
    """Status, body and request id."""
    request_id = str(new_id())
    batch = line.batch
    token_id = batch.token.public_id if batch.token else None
    if not is_let_in(token_id=token_id, user_id=batch.created_by_id):
        message = "Whoever made the batch is not let in any more: the API token is revoked or expired, or the user is."
        return 401, {"error": {"code": "authentication_failed", "message": message}}, request_id
    with bound_contextvars(request_id=request_id, batch=line.batch.public_id):
        response: Any = resolve(line.batch.endpoint).func(_request(line, request_id))
        response.render()
    return response.status_code, json.loads(response.content), request_id


def _request(line: BatchLine, request_id: str) -> HttpRequest:
    body = json.dumps(line.body).encode()
    request: Any = WSGIRequest(
        {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": line.batch.endpoint,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "SERVER_NAME": "batch",
            "SERVER_PORT": "80",
            "HTTP_X_TIMEOUT_MS": str(settings.SYNC_TIMEOUT_MAX_MS),
            "wsgi.input": BytesIO(body),
        }
    )
    batch = line.batch
    request.request_id = request_id
    request.waits_behind = True  # its scoring is batch work
    # Whoever made the batch was let in then; the views see them as if they asked now.
    request._force_auth_user = batch.created_by or AnonymousUser()
    request._force_auth_token = token_found(batch.token.public_id) if batch.token else None
    return request
