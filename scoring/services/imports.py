"""One upload becomes one set: stored whole, or not at all."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from django.db import connection, transaction
from django.db.models import Q

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.texts import has_visible
from assay.token_form import tokens_hidden
from audit.services import audit_record
from scoring.export.tables import csv_table
from scoring.ingest.formats import SNIFF_BYTES, Format, sniff, text_encoding
from scoring.ingest.kinds import IMPORT_KINDS, ImportKind, Item
from scoring.ingest.lengths import TextLengths
from scoring.ingest.mapping import Mapping
from scoring.ingest.readers import rows_read
from scoring.ingest.rows import FileProblem, Row, readable
from scoring.ingest.seen import SeenKeys
from scoring.ingest.tags import TagCounts
from scoring.models import QuerySet
from scoring.models.base import TextSet, UploadedSet
from scoring.services.transitions import transition_record
from scoring.states import SetState

PREVIEW_ROWS: Final = 50
SAMPLE_ROWS: Final = 200
KEPT_PROBLEMS: Final = 100
RAW_CHARACTERS: Final = 300
HASH_BLOCK: Final = 1 << 20
SHOWN_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """``raw``: the row as it was read, for whoever looks at it before the import; it is not kept."""

    line: int
    message: str
    raw: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "message": self.message}


@dataclass(slots=True)
class ImportReport:
    """What was found. ``problems`` holds the first ones only; the counts are complete."""

    read: int = 0
    kept: int = 0
    bad: int = 0
    duplicate: int = 0
    empty: int = 0
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, row: Row, message: str) -> None:
        self.bad += 1
        if len(self.problems) < KEPT_PROBLEMS:
            raw = " | ".join(str(readable(value)) for value in row.values.values())[:RAW_CHARACTERS]
            self.problems.append(Problem(row.line, readable(message), raw))

    def counts(self) -> dict[str, int]:
        return {
            "read": self.read,
            "kept": self.kept,
            "bad": self.bad,
            "duplicate": self.duplicate,
            "empty": self.empty,
        }


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
) -> tuple[UploadedSet, bool]:
    """Read ``file`` (seekable, UTF-8) into a new set of the principal's team. Returns the set and whether it is new.

    Raises AssayError 422 ``unreadable_file``; 422 ``bad_mapping``; 422 ``bad_rows`` with the problems by line, unless
    ``keep_good_rows``; 409 ``already_uploaded`` naming the set made from the same bytes by the same mapping, unless
    ``use_existing``, which returns that set instead.
    """
    kind = import_kind(kind_name)
    _check_name(name)
    name, file_name = tokens_hidden(name), tokens_hidden(file_name)
    checksum = file_checksum(file)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        resolved = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
        if existing := set_of_file(principal=principal, kind=kind, checksum=checksum, mapping=resolved):
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
            return _store(principal, kind, name, file, file_name, file_format, resolved, checksum, keep_good_rows), True
    except FileProblem as error:
        raise AssayError("unreadable_file", f"{file_name}: {error}", status=422, param="file") from error


def _store(
    principal: Principal,
    kind: ImportKind,
    name: str,
    file: BinaryIO,
    file_name: str,
    file_format: Format,
    mapping: Mapping,
    checksum: str,
    keep_good_rows: bool,
) -> UploadedSet:
    uploaded = kind.set_model.objects.create(
        team=principal.team,
        created_by=principal.user,
        name=name,
        file_name=file_name[:255],
        file_format=file_format,
        checksum=checksum,
        mapping=mapping.to_json(),
    )
    report = ImportReport()
    columns = (kind.parent, "position", *kind.columns)
    statement = f"COPY {kind.item_model._meta.db_table} ({', '.join(columns)}) FROM STDIN"
    parent = str(uploaded.pk)  # once, not once a row
    lengths, tags = TextLengths(), TagCounts()
    metadata = kind.columns.index("metadata") if kind.set_model is QuerySet else None
    text = kind.columns.index("text") if "text" in kind.columns else None
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for position, values in enumerate(_items(kind, rows_read(file, file_format), mapping, report)):
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
    uploaded.counts = report.counts()
    uploaded.problems = [problem.to_json() for problem in report.problems]
    uploaded.state = SetState.READY
    fields = ["counts", "problems", "state"]
    if isinstance(uploaded, TextSet):
        uploaded.statistics = {**lengths.to_json(), "tags": tags.to_json()}
        fields.append("statistics")
    uploaded.save(update_fields=fields)
    transition_record(uploaded, SetState.RECEIVING, SetState.READY, actor=principal.label, reason="imported").save()
    audit_record(verb=f"{kind.noun}.uploaded", principal=principal, target=uploaded, detail=report.counts())
    return uploaded


def _items(kind: ImportKind, rows: Iterator[Row], mapping: Mapping, report: ImportReport) -> Iterator[tuple[Any, ...]]:
    """The values of every row that can be kept; the report is filled on the way."""
    for row, item, problem in _judged(kind, rows, mapping, report):
        if item is None:
            report.refuse(row, problem)
            continue
        report.kept += 1
        report.empty += item.is_empty
        yield item.values


def _judged(
    kind: ImportKind, rows: Iterator[Row], mapping: Mapping, report: ImportReport
) -> Iterator[tuple[Row, Item | None, str]]:
    """Every row with its item, or with why it has none. The first of equal keys is kept."""
    seen = SeenKeys()
    for row in rows:
        report.read += 1
        if row.problem:
            yield row, None, row.problem
            continue
        try:
            item = kind.build(row.values, mapping, report.read)
        except ValueError as error:
            yield row, None, str(error)
            continue
        if seen.add(item.key):
            yield row, item, ""
        else:
            report.duplicate += 1
            yield row, None, f"repeats {' and '.join(map(repr, item.key))}, which an earlier row has"


def bad_rows_csv(*, kind_name: str, file: BinaryIO, mapping: dict[str, Any] | None = None) -> Iterator[str]:
    """Lines of a CSV file: each row that cannot be kept, with its line and the reason before its own columns.

    Raises AssayError 422 for a file, or a mapping, that nothing can be read by.
    """
    kind = import_kind(kind_name)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        resolved = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
    except FileProblem as problem:
        raise AssayError("unreadable_file", str(problem), status=422, param="file") from problem
    judged = _judged(kind, rows_read(file, file_format), resolved, ImportReport())
    return csv_table(
        ["line", "reason", *columns],
        (
            [row.line, readable(problem), *(readable(row.values.get(column, "")) for column in columns)]
            for row, item, problem in judged
            if item is None
        ),
    )


def upload_preview(*, kind_name: str, file: BinaryIO, mapping: dict[str, Any] | None = None) -> Preview:
    """Read the whole file without storing anything: the first rows, and every problem wherever it is.

    Raises AssayError 422 ``unreadable_file``. A mapping that cannot be completed is a message in the preview.
    """
    kind = import_kind(kind_name)
    try:
        file_format = sniff(file, trec=kind.trec)
        columns = columns_found(file, file_format)
        first = itertools.islice(rows_read(file, file_format), PREVIEW_ROWS)
        rows = [Row(row.line, readable(row.values), row.problem) for row in first]
        report, error, resolved = ImportReport(), "", dict(mapping or {})
        try:
            found = Mapping.resolve(mapping, roles=kind.roles, columns=columns, any_of=kind.any_of)
            resolved = found.to_json()
            deque(_items(kind, rows_read(file, file_format), found, report), maxlen=0)
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
    *, principal: Principal, kind: ImportKind, checksum: str, mapping: Mapping | None = None
) -> UploadedSet | None:
    """The team's set that was made from the bytes with this checksum, by this mapping if one is given, and still has
    its texts; if there is one."""
    same = Q(checksum=checksum, state=SetState.READY)
    if mapping is not None:
        same &= Q(mapping=mapping.to_json())
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
