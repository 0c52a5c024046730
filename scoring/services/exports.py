"""Tables as files that are made in the background: asked for, made by whoever has the lease, kept for a while.

A maker that dies leaves a lease that ends; the file is then made anew, from its beginning.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import Storage
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from rest_framework.exceptions import PermissionDenied

from accounts.selectors import token_found
from accounts.services import is_let_in, principal_in_team, principal_of_token
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.uploads import room_for_uploads
from audit.services import audit_record
from scoring.export.formats import file_name, format_check, table_parts
from scoring.export.sources import SOURCES, export_table
from scoring.models import Export, Job
from scoring.models.base import TextSet
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import ExportState

MOST_OPEN: Final = 5  # of one owner
MOST_ATTEMPTS: Final = 3
ROWS_PER_STEP: Final = 1_000

Item = TypeVar("Item")


class Given(Exception):
    """The file is no longer ours to make: stopped, deleted, or leased by another."""


def exports_of(principal: Principal) -> Any:
    """The principal's own: what one member exported is not the others', nor what a token did its maker's."""
    rows = Export.objects.for_team(principal.team).filter(expires_at__gt=timezone.now())
    if principal.token is not None:
        return rows.filter(token=principal.token)
    return rows.filter(created_by=principal.user, token=None)


def export_ask(*, principal: Principal, table: str, file_format: str, parameters: Mapping[str, Any]) -> Export:
    """Have the table made into a file. Raises AssayError 422 / 404 / 409 for what cannot be exported, 429
    ``too_many_exports``; PermissionDenied without the table's scope."""
    opened = export_table(table, principal=principal, parameters=parameters)
    format_check(opened, file_format)
    unfinished = Q(state__in=(ExportState.WAITING, ExportState.RUNNING))
    if exports_of(principal).filter(unfinished).count() >= MOST_OPEN:
        message = f"{MOST_OPEN} of your exports are being made already; wait until one is ready."
        raise AssayError("too_many_exports", message, status=429, retry_after=10)
    hours = settings.EXPORT_KEEP_HOURS
    export = Export(
        team=principal.team, created_by=principal.user, token=principal.token, table=table,
        parameters=dict(parameters), file_format=file_format, rows_total=opened.count.rows,
        file_name=file_name(opened, file_format), expires_at=timezone.now() + timedelta(hours=hours),
    )  # fmt: skip
    with transaction.atomic():
        export.save(force_insert=True)
        transition_record(export, "", ExportState.WAITING, actor=principal.label, reason="asked").save()
        detail = {"table": table, "format": file_format}
        audit_record(verb=SOURCES[table].verb, principal=principal, target=opened.subject or export, detail=detail)
    return export


def export_delete(*, export: Export) -> None:
    """Row and file; who makes it notices at its next step."""
    storage, name = _storage(), str(export.file.name or "")
    with transaction.atomic():
        export.delete()
        if name:
            transaction.on_commit(lambda: storage.delete(name))


def exports_forget(uploaded: TextSet) -> None:
    """Files that hold the set's texts end with them."""
    of_set = Q(parameters__set=str(uploaded.pk))
    jobs = Job.objects.filter(Q(document_set_id=uploaded.pk) | Q(query_set_id=uploaded.pk))
    of_jobs = Q(parameters__job__in=[str(pk) for pk in jobs.values_list("pk", flat=True)])
    Export.objects.filter(of_set | of_jobs, team_id=uploaded.team_id).update(expires_at=timezone.now())


# The maker's side


def export_claim() -> Export | None:
    """The oldest that waits, for LEASE_SECONDS."""
    now = timezone.now()
    waiting = Export.objects.filter(state=ExportState.WAITING, expires_at__gt=now).order_by("created_at")
    export = waiting.first()
    if export is None:
        return None
    taken = transition(
        export, ExportState.RUNNING, actor=RECONCILER, reason="claimed", attempts=export.attempts + 1, rows_done=0,
        lease_token=uuid.uuid4(), lease_expires_at=_lease_end(),
    )  # fmt: skip
    return export if taken else None


def export_make(export: Export, *, stopped: Callable[[], bool] = lambda: False) -> ExportState:
    """Make the file of a claimed export. Returns the state it is in then; ``stopped`` gives it back."""
    try:
        _write(export, stopped)
    except Given:
        if stopped():
            _end(export, ExportState.WAITING, reason="given back", attempts=export.attempts - 1)
    except AssayError as refusal:
        _end(export, ExportState.FAILED, reason=refusal.code, error=refusal.message, finished_at=timezone.now())
    except PermissionDenied as refusal:
        error = str(refusal.detail)
        _end(export, ExportState.FAILED, reason="permission_denied", error=error, finished_at=timezone.now())
    return ExportState(export.state)


def exports_reclaim() -> int:
    """The reconciler's part: of makers that are gone, what they had begun waits again, or is given up."""
    lapsed = Export.objects.filter(state=ExportState.RUNNING, lease_expires_at__lt=timezone.now())
    back = 0
    for export in lapsed:
        if export.attempts >= MOST_ATTEMPTS:
            error = f"Its maker ended {export.attempts} times before the file was ready. Ask for fewer rows."
            back += _end(export, ExportState.FAILED, reason="given up", error=error, finished_at=timezone.now())
        else:
            back += _end(export, ExportState.WAITING, reason="lease ended")
    return back


def exports_expire() -> int:
    """The reconciler's part: files whose time is up."""
    ended = list(Export.objects.filter(expires_at__lte=timezone.now()))
    for export in ended:
        export_delete(export=export)
    return len(ended)


def _write(export: Export, stopped: Callable[[], bool]) -> None:
    table = export_table(export.table, principal=_owner(export), parameters=export.parameters)
    counted = replace(
        table,
        rows=lambda: _watched(table.rows(), export, stopped),
        trec=(lambda: _watched(table.trec(), export, stopped)) if table.trec else None,  # type: ignore[misc]
    )
    storage = _storage()
    with tempfile.TemporaryFile(dir=str(settings.FILE_UPLOAD_TEMP_DIR)) as written, room_for_uploads():
        for part in table_parts(counted, export.file_format):
            written.write(part)
        size = written.tell()
        written.seek(0)
        _step(export, stopped)
        field: Any = Export._meta.get_field("file")
        name = storage.save(field.generate_filename(export, export.file_name), File(written))
    ended = _end(export, ExportState.DONE, reason="made", file=name, size=size, finished_at=timezone.now())
    if not ended:
        storage.delete(name)


def _watched(rows: Iterator[Item], export: Export, stopped: Callable[[], bool]) -> Iterator[Item]:
    """The same rows; how many there were is noted, and the lease held, as they pass."""
    done = 0
    for done, row in enumerate(rows, start=1):
        yield row
        if done % ROWS_PER_STEP == 0:
            export.rows_done = done
            _step(export, stopped)
    export.rows_done = done


def _step(export: Export, stopped: Callable[[], bool]) -> None:
    """Raises Given when there is no reason to go on."""
    held = _leased(export).update(rows_done=export.rows_done, lease_expires_at=_lease_end())
    if not held or stopped():
        raise Given


def _end(export: Export, to: ExportState, *, reason: str, **fields: Any) -> bool:
    ours = Q(lease_token=export.lease_token)
    fields |= {"lease_token": None, "lease_expires_at": None}
    if to == ExportState.DONE:
        fields["rows_done"] = export.rows_done
    return transition(export, to, actor=RECONCILER, reason=reason, where=ours, **fields)


def _leased(export: Export) -> Any:
    return Export.objects.filter(pk=export.pk, state=ExportState.RUNNING, lease_token=export.lease_token)


def _lease_end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)


def _owner(export: Export) -> Principal:
    """Whoever asked, with the rights they have by now. Raises AssayError 403 for one not let in any more."""
    token_id = export.token.public_id if export.token else None
    if not is_let_in(token_id=token_id, user_id=export.created_by_id):
        message = "Whoever asked for it is not let in any more: the API token is revoked or expired, or the user is."
        raise AssayError("authentication_failed", message, status=403)
    if token_id is not None:
        return principal_of_token(token_found(token_id))  # type: ignore[arg-type]  # found a moment ago
    assert export.created_by is not None, "is_let_in found the person"
    return principal_in_team(export.created_by, export.team)


def _storage() -> Storage:
    field: Any = Export._meta.get_field("file")
    storage: Storage = field.storage
    return storage
