"""One upload becomes one set: stored whole, or not at all."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from django.db import connection, transaction
from django.db.models import Q

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.texts import has_visible
from assay.token_form import tokens_hidden
from audit.services import audit_record
from scoring.export.tables import csv_table
from scoring.ingest.conflicts import ConflictRule
from scoring.ingest.formats import SNIFF_BYTES, Format, sniff, text_encoding
from scoring.ingest.items import NO_CHECKS, ImportChecks, ImportReport, Source, items_kept, rows_judged, scale_of
from scoring.ingest.kinds import IMPORT_KINDS, ImportKind
from scoring.ingest.known_ids import IdCheck
from scoring.ingest.lengths import TextLengths
from scoring.ingest.mapping import Mapping
from scoring.ingest.readers import rows_read
from scoring.ingest.rows import FileProblem, Row, readable
from scoring.ingest.tags import TagCounts
from scoring.models import JudgementSet, QuerySet
from scoring.models.base import TextSet, UploadedSet
from scoring.services.transitions import transition_record
from scoring.states import SetState

PREVIEW_ROWS: Final = 50
SAMPLE_ROWS: Final = 200
HASH_BLOCK: Final = 1 << 20
SHOWN_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class Preview:
    """What a person sees before the import: format, columns, guessed mapping, first rows, first problems.

    The cells of ``rows`` are cut to what is shown: fifty whole ones may be as large as the file.
    """

    file_format: Format
    columns: list[str]
    mapping: dict[str, Any]
    mapping_error: str
    rows: list[Row]
    report: ImportReport


def import_kind(name: str) -> ImportKind:
    if name not in IMPORT_KINDS:
        raise AssayError(
            "unknown_import", f"'{name}' cannot be uploaded; give one of {', '.join(IMPORT_KINDS)}.", status=422
        )
    return IMPORT_KINDS[name]


def set_import(
    *,
    principal: Principal,
    kind_name: str,
    name: str,
    file: BinaryIO,
    file_name: str,
    mapping: dict[str, Any] | None = None,
    keep_good_rows: bool = False,
    use_existing: bool = False,
    checks: ImportChecks = NO_CHECKS,
) -> tuple[UploadedSet, bool]:
    """Read ``file`` (seekable, UTF-8) into a new set of the principal's team. Returns the set and whether it is new.

    Raises AssayError 422 ``unreadable_file``; 422 ``bad_mapping``; 422 ``bad_rows`` with the problems by line, unless
    ``keep_good_rows``; 409 ``already_uploaded`` naming the set made from the same bytes by the same mapping, unless
    ``use_existing``, which returns that set instead; 422 ``ids_do_not_match`` when hardly a row is of the sets checked.
    """
    kind = import_kind(kind_name)
    _check_name(name)
    name, file_name = tokens_hidden(name), tokens_hidden(file_name)
    checksum = file_checksum(file)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        resolved = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
        if existing := set_of_file(
            principal=principal, kind=kind, checksum=checksum, mapping=resolved, rule=checks.conflicts
        ):
            if use_existing:
                return existing, False
            raise AssayError(
                "already_uploaded",
                f"The same file was uploaded before, with the same mapping, as '{existing.name}' "
                f"({existing.created_at:%Y-%m-%d %H:%M} UTC). Use that set, or say use_existing to get it as the "
                "answer.",
                status=409,
                param="file",
                extra={"existing": {"id": str(existing.pk), "name": existing.name}},
            )
        with transaction.atomic():
            source = Source(file, file_name, file_format, checksum, resolved)
            return _store(principal, kind, name, source, keep_good_rows, checks), True
    except FileProblem as error:
        raise AssayError("unreadable_file", f"{file_name}: {error}", status=422, param="file") from error


def _store(
    principal: Principal,
    kind: ImportKind,
    name: str,
    source: Source,
    keep_good_rows: bool,
    checks: ImportChecks,
) -> UploadedSet:
    file_name = source.file_name
    uploaded = kind.set_model.objects.create(
        team=principal.team,
        created_by=principal.user,
        name=name,
        file_name=file_name[:255],
        file_format=source.file_format,
        checksum=source.checksum,
        mapping=source.mapping.to_json(),
        **_version(checks.base),
    )
    report = checks.report()
    columns = (kind.parent, "position", *kind.columns)
    statement = f"COPY {kind.item_model._meta.db_table} ({', '.join(columns)}) FROM STDIN"
    parent = str(uploaded.pk)  # once, not once a row
    lengths, tags = TextLengths(), TagCounts()
    metadata = kind.columns.index("metadata") if kind.set_model is QuerySet else None
    text = kind.columns.index("text") if "text" in kind.columns else None
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for position, values in enumerate(items_kept(kind, source, report, checks.conflicts)):
            copy.write_row((parent, position, *values))
            if text is not None:
                lengths.add(values[text])
            if metadata is not None:
                tags.add(values[metadata])
    if report.bad and not keep_good_rows:
        raise AssayError(
            "bad_rows",
            f"{report.bad:,} of {report.read:,} rows of {file_name} cannot be kept; the first: line "
            f"{report.problems[0].line} {report.problems[0].message}. Mend them, or say keep_good_rows.",
            status=422,
            param="file",
            extra={"counts": report.counts(), "problems": [problem.to_json() for problem in report.problems]},
        )
    if report.kept == 0:
        first = report.problems[0]
        raise FileProblem(
            f"None of its {report.read:,} rows can be kept; the first: line {first.line} {first.message}."
        )
    if report.ids.too_few:
        raise _ids_do_not_match(report.ids)
    uploaded.counts = report.counts()
    uploaded.problems = [problem.to_json() for problem in report.problems]
    uploaded.state = SetState.READY
    fields = ["counts", "problems", "state"]
    if isinstance(uploaded, TextSet):
        uploaded.statistics = {**lengths.to_json(), "tags": tags.to_json()}
        fields.append("statistics")
    if isinstance(uploaded, JudgementSet):
        uploaded.provenance = {**report.findings(), "rule": checks.conflicts}
        uploaded.scale = scale_of(report, checks.base)
        fields += ["provenance", "scale"]
    uploaded.save(update_fields=fields)
    transition_record(uploaded, SetState.RECEIVING, SetState.READY, actor=principal.label, reason="imported").save()
    audit_record(verb=f"{kind.noun}.uploaded", principal=principal, target=uploaded, detail=report.counts())
    return uploaded


def _version(base: JudgementSet | None) -> dict[str, Any]:
    """The fields of the next version of ``base``'s set; of others there is nothing to say."""
    if base is None:
        return {}
    # Locked until the new version is there: of two uploads at once the second waits for its number.
    newest = JudgementSet.objects.select_for_update().filter(root=base.root).order_by("-version")[0]
    return {
        "root": newest.root,
        "version": JudgementSet.next_version(newest.root),
        "relevant_from": base.relevant_from,
        "guidelines": base.guidelines,
    }


def _ids_do_not_match(ids: IdCheck) -> AssayError:
    shown = [f"{key!r}" for first in ids.first for key in first[:2]]
    return AssayError(
        "ids_do_not_match",
        f"Of {ids.rows:,} rows {ids.matched:,} name a query and a document of the sets chosen; unknown are "
        f"{', '.join(shown)}. Choose the sets that the file was made for, or none.",
        status=422,
        param="query_set" if ids.unknown[0] else "document_set",
        extra={"ids": ids.to_json()},
    )


def bad_rows_csv(
    *,
    kind_name: str,
    file: BinaryIO,
    mapping: dict[str, Any] | None = None,
    checks: ImportChecks = NO_CHECKS,
    unmatched: bool = False,
) -> Iterator[str]:
    """Lines of a CSV file: each row that cannot be kept, with its line and the reason before its own columns; with
    ``unmatched``, each good row that names what the sets of ``checks`` do not have.

    Raises AssayError 422 for a file, or a mapping, that nothing can be read by.
    """
    kind = import_kind(kind_name)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        resolved = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
    except FileProblem as problem:
        raise AssayError("unreadable_file", str(problem), status=422, param="file") from problem
    report = checks.report()
    judged = rows_judged(kind, Source(file, "", file_format, "", resolved), report, checks.conflicts)
    told = (
        (row, report.ids.problem(*item.key) if unmatched else "") if item else (row, "" if unmatched else problem)
        for row, item, problem in judged
    )
    return csv_table(
        ["line", "reason", *columns],
        (
            [row.line, readable(problem), *(readable(row.values.get(column, "")) for column in columns)]
            for row, problem in told
            if problem
        ),
    )


def upload_preview(
    *, kind_name: str, file: BinaryIO, mapping: dict[str, Any] | None = None, checks: ImportChecks = NO_CHECKS
) -> Preview:
    """Read the whole file without storing anything: the first rows, and every problem wherever it is.

    Raises AssayError 422 ``unreadable_file``. A mapping that cannot be completed is a message in the preview.
    """
    kind = import_kind(kind_name)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        first = itertools.islice(rows_read(file, file_format), PREVIEW_ROWS)
        rows = [Row(row.line, readable(row.values), row.problem) for row in first]
        report, error, resolved = checks.report(), "", dict(mapping or {})
        try:
            found = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
            resolved = found.to_json()
            deque(items_kept(kind, Source(file, "", file_format, "", found), report, checks.conflicts), maxlen=0)
        except AssayError as refusal:
            error = refusal.message
        return Preview(file_format, columns, resolved, error, rows, report)
    except FileProblem as problem:
        raise AssayError("unreadable_file", str(problem), status=422, param="file") from problem


def columns_found(file: BinaryIO, file_format: Format) -> list[str]:
    """Column names in order of appearance: the header, or the keys of the first rows of a JSON-lines file."""
    first, count, names = Row(0), 0, dict[str, None]()
    for row in itertools.islice(rows_read(file, file_format), SAMPLE_ROWS):  # long ones are not held together
        first = first if count else row
        names |= dict.fromkeys(row.values)
        count += 1
    if not count:
        raise FileProblem(
            f"The file has one line that is not blank, {_first_line(file)!r}, which is read as the names of its "
            "columns, and no rows below it. Give that line and at least one row."
        )
    if not names:
        read = "None of its rows" if count < SAMPLE_ROWS else f"None of its first {SAMPLE_ROWS} rows"
        raise FileProblem(
            f"{read} can be read; the first: line {first.line} {readable(first.problem or 'has no members')}. "
            'Give a JSON object a line, such as {"id": …, "text": …}.'
        )
    return list(names)


def _first_line(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(SNIFF_BYTES).decode(text_encoding(file), "replace")
    return readable(next(line for line in head.splitlines() if line.strip())[:SHOWN_NAME])


def _check_name(name: str) -> None:
    if not has_visible(name) or len(name) > 200 or "\x00" in name:
        given = "A name with a NUL" if "\x00" in name else f"A name of {len(name):,} characters"
        unseen = "" if has_visible(name) else ", none of which can be seen,"
        message = f"{given}{unseen} was given; give 1 to 200 characters, without NUL."
        raise AssayError("bad_name", message, status=422, param="name")


def set_of_file(
    *,
    principal: Principal,
    kind: ImportKind,
    checksum: str,
    mapping: Mapping | None = None,
    rule: ConflictRule | None = None,
) -> UploadedSet | None:
    """The team's set that was made from the bytes with this checksum, by this mapping and this rule if they are given,
    and still has its texts; if there is one."""
    same = Q(checksum=checksum, state=SetState.READY)
    if mapping is not None:
        same &= Q(mapping=mapping.to_json())
    if rule is not None and kind.graded:
        same &= Q(provenance__rule=rule)
    if issubclass(kind.set_model, TextSet):
        same &= Q(texts_delete_requested_at=None)
    return kind.set_model.objects.for_team(principal.team).filter(same).first()


def file_checksum(file: BinaryIO) -> str:
    """SHA-256 of the whole file, in hexadecimal."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(HASH_BLOCK):
        digest.update(block)
    return digest.hexdigest()
