"""Batches of requests from a file: checked line by line, answered by ``batch_lines``, written into files at the end.

``batches_advance`` may run in several processes at once: each batch is moved by one of them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import IO, Any, Final

from django.conf import settings
from django.core.files.base import File
from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone
from rest_framework.exceptions import APIException

from accounts.models import Team
from assay.api.parsers import parse_json
from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import BatchFile, BatchLine, RequestBatch
from scoring.models.batch_file import FilePurpose
from scoring.services.batch_files import pk_of
from scoring.services.transitions import RECONCILER, transition
from scoring.services.uploads import file_keep
from scoring.states import OPEN_LINES, BatchState, LineState

ENDPOINTS: Final = ("/v1/rerank", "/v1/score", "/v1/embeddings")
WINDOW: Final = "24h"
MOST_LINES: Final = 50_000
SHOWN_PROBLEMS: Final = 50
LINE_FIELDS: Final = ("body", "custom_id", "method", "url")
LINES_AT_ONCE: Final = 500
MEMORY_BYTES: Final = 1 << 20  # of a file being written, before it goes to the disk


def batch_create(
    *, principal: Principal, endpoint: str, input_file: BatchFile, metadata: dict[str, str] | None
) -> RequestBatch:
    """The file is checked later; what is wrong with it stands in the batch's ``errors`` then."""
    if input_file.purpose != FilePurpose.BATCH:
        message = (
            f"{input_file.public_id} is a file of the purpose '{input_file.purpose}'; give one uploaded as 'batch'."
        )
        raise AssayError("wrong_purpose", message, status=422, param="input_file_id")
    batch = RequestBatch.objects.create(
        team=principal.team,
        created_by=principal.user,
        token=principal.token,
        endpoint=endpoint,
        input_id=input_file.pk,
        completion_window=WINDOW,
        metadata=metadata,
        expires_at=timezone.now() + timedelta(hours=24),
    )
    audit_record(verb="batch.created", principal=principal, target=batch, detail={"endpoint": endpoint})
    return batch


def batch_of(team: Team, public_id: str) -> RequestBatch:
    """The team's batch. Raises AssayError 404: another team's is not found."""
    pk = pk_of(public_id, "batch_")
    found = RequestBatch.objects.for_team(team).filter(pk=pk).first() if pk else None
    if found is None:
        raise AssayError("not_found", f"There is no batch {public_id[:80]!r} in your team.", status=404)
    return found


def batch_cancel(*, batch: RequestBatch, principal: Principal) -> None:
    """No further line is begun. Raises AssayError 409 for a batch that has ended or is ending."""
    if batch.state == BatchState.CANCELLING:
        return
    if batch.state not in (BatchState.VALIDATING, BatchState.IN_PROGRESS) or not _move(
        batch, BatchState.CANCELLING, actor=principal.label, reason="asked for"
    ):
        batch.refresh_from_db()
        message = f"{batch.public_id} is {batch.state}; only one that is validating or in progress can be cancelled."
        raise AssayError("batch_not_open", message, status=409)
    audit_record(verb="batch.cancelled", principal=principal, target=batch)


def batch_counts(batch: RequestBatch) -> dict[str, int]:
    if batch.counts:
        return dict(batch.counts)
    done, failed = Count("pk", filter=Q(state=LineState.DONE)), Count("pk", filter=Q(state=LineState.FAILED))
    return dict(batch.lines.aggregate(total=Count("pk"), completed=done, failed=failed))


def batches_advance() -> bool:
    """One step for every batch that can make one. Returns whether lines may be waiting."""
    for state, step in STEPS.items():
        for pk in list(RequestBatch.objects.filter(state=state).order_by("pk").values_list("pk", flat=True)):
            with transaction.atomic():
                rows = RequestBatch.objects.select_for_update(skip_locked=True, of=("self",))
                batch = rows.filter(pk=pk, state=state).first()
                if batch is not None:
                    step(batch)
    return RequestBatch.objects.filter(state=BatchState.IN_PROGRESS).exists()


def _validate(batch: RequestBatch) -> None:
    problems: list[dict[str, Any]] = []
    lines: list[BatchLine] = []
    known: set[str] = set()
    try:
        with BatchFile.objects.get(pk=batch.input_id, team=batch.team_id).file.open("rb") as file:
            for number, content in _lines_of(file):
                try:
                    lines.append(_line(batch, number, content, known))
                except AssayError as error:
                    problems.append(
                        {"code": error.code, "message": error.message, "param": error.param, "line": number}
                    )
                if len(problems) >= SHOWN_PROBLEMS or number > MOST_LINES:
                    break
                if len(lines) >= LINES_AT_ONCE and not problems:
                    BatchLine.objects.bulk_create(lines)
                    lines.clear()
    except (BatchFile.DoesNotExist, OSError) as error:
        problems.append(
            {"code": "no_file", "message": f"The file cannot be read: {error}.", "param": None, "line": None}
        )
    if not problems and not known:
        message = "The file holds no request; give one JSON object per line."
        problems.append({"code": "empty_file", "message": message, "param": None, "line": None})
    if problems:
        batch.lines.all().delete()
        counts = {"total": 0, "completed": 0, "failed": 0}
        _move(batch, BatchState.FAILED, actor=RECONCILER, reason="bad file", problems=problems, counts=counts)
        return
    BatchLine.objects.bulk_create(lines)
    _move(batch, BatchState.IN_PROGRESS, actor=RECONCILER, reason="file checked")


def _lines_of(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while content := file.readline(settings.MAX_BODY_BYTES + 1):
        number += 1
        if content.strip():
            yield number, content
        if len(content) > settings.MAX_BODY_BYTES:
            return  # the line was reported; what follows in it is no line


def _line(batch: RequestBatch, number: int, content: bytes, known: set[str]) -> BatchLine:
    """Raises AssayError for a line that is no request."""
    if number > MOST_LINES:
        raise AssayError("too_many_lines", f"The file has more than {MOST_LINES:,} lines. Split it.")
    if len(content) > settings.MAX_BODY_BYTES:
        limit = settings.MAX_BODY_BYTES
        raise AssayError("line_too_long", f"The line has more than {limit:,} bytes. Send fewer documents in it.")
    try:
        given = parse_json(content)
    except APIException as error:
        raise AssayError("invalid_json_line", str(error.detail)) from error
    if not isinstance(given, dict) or sorted(given) != sorted(LINE_FIELDS):
        names = ", ".join(sorted(given)) if isinstance(given, dict) else "no object"
        message = f"A line is an object of exactly {', '.join(LINE_FIELDS)}; this one has: {names[:200]}."
        raise AssayError("invalid_line", message)
    custom_id = given["custom_id"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= 512:
        raise AssayError(
            "invalid_custom_id",
            f"custom_id is {str(custom_id)[:80]!r}; give a text of 1 to 512 characters.",
            param="custom_id",
        )
    if custom_id in known:
        message = f"The custom_id '{custom_id[:80]}' stands in an earlier line; each must be unique."
        raise AssayError("duplicate_custom_id", message, param="custom_id")
    if given["method"] != "POST":
        raise AssayError("invalid_method", f"method is {str(given['method'])[:80]!r}; give 'POST'.", param="method")
    if given["url"] != batch.endpoint:
        message = f"url must be '{batch.endpoint}', the batch's endpoint; the line has {str(given['url'])[:80]!r}."
        raise AssayError("mismatched_url", message, param="url")
    if not isinstance(given["body"], dict):
        raise AssayError(
            "invalid_body",
            f"body is {str(given['body'])[:80]!r}; give an object, as the endpoint takes it.",
            param="body",
        )
    known.add(custom_id)
    return BatchLine(batch=batch, number=number, custom_id=custom_id, body=given["body"])


def _work(batch: RequestBatch) -> None:
    """Nothing more to do for a batch in progress when all lines have ended, or its time is up."""
    late = batch.expires_at <= timezone.now()
    if late or not batch.lines.filter(state__in=OPEN_LINES).exists():
        reason = "not done in time" if late else "all lines ended"
        _move(batch, BatchState.FINALIZING, actor=RECONCILER, reason=reason)


def _finalize(batch: RequestBatch) -> None:
    late = batch.lines.filter(state__in=OPEN_LINES).exists()
    _end(batch, BatchState.EXPIRED if late else BatchState.COMPLETED, "batch_expired", "It was not begun in time.")


def _cancelled(batch: RequestBatch) -> None:
    in_hand = Q(state=LineState.LEASED, lease_expires_at__gt=timezone.now())
    if not batch.lines.filter(in_hand).exists():
        _end(batch, BatchState.CANCELLED, "batch_cancelled", "The batch was cancelled before it was begun.")


STEPS: Final = {
    BatchState.VALIDATING: _validate,
    BatchState.IN_PROGRESS: _work,
    BatchState.FINALIZING: _finalize,
    BatchState.CANCELLING: _cancelled,
}


def _end(batch: RequestBatch, state: BatchState, code: str, message: str) -> None:
    """Write the files and drop the lines, which are in them. ``code``: of lines never answered."""
    counts = batch_counts(batch)
    counts["failed"] = counts["total"] - counts["completed"]
    open_error = {"code": code, "message": message}
    done = (_written(line, None) for line in _ordered(batch, Q(state=LineState.DONE)))
    wrong = (
        _written(line, open_error if line.state in OPEN_LINES else _error_of(line))
        for line in _ordered(batch, ~Q(state=LineState.DONE))
    )
    files = {
        "output_id": _file(batch, FilePurpose.OUTPUT, done) if counts["completed"] else None,
        "error_id": _file(batch, FilePurpose.ERROR, wrong) if counts["failed"] else None,
    }
    _move(batch, state, actor=RECONCILER, reason=f"{counts['completed']} of {counts['total']}", counts=counts, **files)
    batch.lines.all().delete()


def _ordered(batch: RequestBatch, which: Q) -> Iterator[BatchLine]:
    return batch.lines.filter(which).order_by("number").iterator(chunk_size=LINES_AT_ONCE)


def _error_of(line: BatchLine) -> dict[str, Any]:
    told = (line.answer or {}).get("error", {})
    return {"code": told.get("code", "server_error"), "message": told.get("message", "")}


def _written(line: BatchLine, error: dict[str, Any] | None) -> bytes:
    answered = line.status_code is not None and line.state not in OPEN_LINES
    response = {"status_code": line.status_code, "request_id": line.request_id, "body": line.answer}
    row = {
        "id": f"batch_req_{line.pk}",
        "custom_id": line.custom_id,
        "response": response if answered else None,
        "error": error,
    }
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _file(batch: RequestBatch, purpose: FilePurpose, lines: Iterator[bytes]) -> Any:
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(settings.FILE_UPLOAD_TEMP_DIR)) as written:
        for line in lines:
            written.write(line)
        size = written.tell()
        written.seek(0)
        name = f"{batch.public_id}_{'output' if purpose == FilePurpose.OUTPUT else 'error'}.jsonl"
        row = BatchFile(team_id=batch.team_id, created_by_id=batch.created_by_id, purpose=purpose, size=size)
        file_keep(row, File(written), name=name)
    return row.pk


def _move(batch: RequestBatch, to: BatchState, *, actor: str, reason: str, **fields: Any) -> bool:
    moments = {**batch.moments, to.value: int(time.time())}
    return transition(batch, to, actor=actor, reason=reason, moments=moments, **fields)
