"""A file's rows become items, and a report tells what was found in it; nothing is stored here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from scoring.ingest.conflicts import ConflictRule, conflict_told, conflicts_found, grades_of
from scoring.ingest.formats import Format
from scoring.ingest.kinds import ImportKind, Item
from scoring.ingest.known_ids import IdCheck
from scoring.ingest.mapping import Mapping
from scoring.ingest.readers import rows_read
from scoring.ingest.rows import Row, readable
from scoring.ingest.seen import SeenKeys
from scoring.models import DocumentSet, JudgementSet, QuerySet
from scoring.models.judgement_set import GRADES_NAMED, default_scale

KEPT_PROBLEMS: Final = 100
KEPT_SEVERAL: Final = 1_000  # pairs with several grades
KEPT_GRADES: Final = 20  # of each
RAW_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """``raw``: the row as it was read, for whoever looks at it before the import; it is not kept."""

    line: int
    message: str
    raw: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "message": self.message}


@dataclass(frozen=True, slots=True)
class ImportChecks:
    """What is chosen beside the columns, of files that name pairs: the sets that the ids are of, and, of judgements,
    what becomes of a pair with several grades and which set this is the next version of."""

    query_set: QuerySet | None = None
    document_set: DocumentSet | None = None
    conflicts: ConflictRule = ConflictRule.REJECT
    base: JudgementSet | None = None

    def report(self) -> ImportReport:
        return ImportReport(ids=IdCheck(self.query_set, self.document_set))


@dataclass(slots=True)
class ImportReport:
    """What was found. ``problems`` holds the first ones only; the counts are complete."""

    read: int = 0
    kept: int = 0
    bad: int = 0
    duplicate: int = 0
    empty: int = 0
    problems: list[Problem] = field(default_factory=list)
    ids: IdCheck = field(default_factory=IdCheck)
    conflicts: int = 0  # pairs with several grades
    several: dict[tuple[str, ...], list[int]] = field(default_factory=dict)  # of such pairs, the first by id
    spreads: Counter[int] = field(default_factory=Counter)  # such pairs by how far their grades are apart
    grades: Counter[int] = field(default_factory=Counter)
    best: dict[str, int] = field(default_factory=dict)  # grade by query
    disordered: set[str] = field(default_factory=set)  # queries of a run whose scores do not fall with the ranks
    _last: tuple[Any, ...] = ()

    def keep(self, kind: ImportKind, item: Item) -> None:
        self.kept += 1
        self.empty += item.is_empty
        if kind.names_pairs:
            self.ids.problem(*item.key)
        if kind.graded:
            query_id, grade = item.values[0], item.values[2]
            self.grades[grade] += 1
            self.best[query_id] = max(grade, self.best.get(query_id, grade))
        if kind.ranks:
            self._compare(item.values)

    def _compare(self, values: tuple[Any, ...]) -> None:
        """With the row before, if it is of the same query and both have a rank and a score."""
        (query_id, _, rank, score), last, self._last = values, self._last, values
        if last and last[0] == query_id and None not in (rank, score, last[2], last[3]):
            contrary = (rank - last[2]) * (score - last[3]) > 0
            self.disordered |= {query_id} if contrary else set()

    @property
    def irrelevant(self) -> list[str]:
        """Queries of which no document is relevant."""
        return [query_id for query_id, grade in self.best.items() if grade < 1]

    @property
    def pooled(self) -> int:
        """Negative grades: in the pool, and not judged."""
        return sum(count for grade, count in self.grades.items() if grade < 0)

    @property
    def distribution(self) -> list[tuple[int, int]]:
        return sorted(self.grades.items())

    @property
    def spread_counts(self) -> list[tuple[int, int]]:
        return sorted(self.spreads.items())

    def findings(self) -> dict[str, Any]:
        """What a judgement set keeps of its import."""
        return {
            "made": "imported",
            "grades": {str(grade): count for grade, count in self.distribution},
            "conflicts": self.conflicts,
            "spreads": {str(spread): count for spread, count in self.spread_counts},
            "several": [[*pair, grades] for pair, grades in self.several.items()],
            "pooled": self.pooled,
            "queries": len(self.best),
            "queries_without_relevant": len(self.irrelevant),
            "ids": self.ids.to_json() if self.ids.asked else None,
        }

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


NO_CHECKS: Final = ImportChecks()


@dataclass(frozen=True, slots=True)
class Source:
    """A file and how it is read."""

    file: BinaryIO
    file_name: str
    file_format: Format
    checksum: str
    mapping: Mapping


def items_kept(kind: ImportKind, source: Source, report: ImportReport, rule: ConflictRule) -> Iterator[tuple[Any, ...]]:
    """The values of every row that can be kept; the report is filled on the way."""
    for row, item, problem in rows_judged(kind, source, report, rule):
        if item is None:
            report.refuse(row, problem)
            continue
        report.keep(kind, item)
        yield item.values


def rows_judged(
    kind: ImportKind, source: Source, report: ImportReport, rule: ConflictRule
) -> Iterator[tuple[Row, Item | None, str]]:
    """Each row with what it becomes, or with what is wrong; the first of equal keys is kept. Of judgements a row that
    says once more what another says is passed over, and a pair with several grades has the one of ``rule``."""
    conflicts = _conflicts(kind, source) if kind.graded else {}
    report.conflicts = len(conflicts)
    report.several = {pair: conflicts[pair][:KEPT_GRADES] for pair in sorted(conflicts)[:KEPT_SEVERAL]}
    report.spreads = Counter(max(grades) - min(grades) for grades in conflicts.values())
    seen = SeenKeys()
    for row, built, problem in _built(kind, source):
        report.read += 1
        if built is None:
            yield row, None, problem
            continue
        is_new = seen.add(built.key)
        if built.key in conflicts and rule == ConflictRule.REJECT:
            yield row, None, conflict_told(conflicts[built.key])
        elif is_new:
            if (grades := conflicts.get(built.key)) is not None:
                built.values = (*built.values[:2], rule.grade(grades))
            yield row, built, ""
        else:
            report.duplicate += 1
            if not kind.graded:
                yield row, None, f"repeats {' and '.join(map(repr, built.key))}, which an earlier row has"


def _built(kind: ImportKind, source: Source) -> Iterator[tuple[Row, Item | None, str]]:
    for number, row in enumerate(rows_read(source.file, source.file_format), start=1):
        if row.problem:
            yield row, None, row.problem
            continue
        try:
            yield row, kind.build(row.values, source.mapping, number), ""
        except ValueError as error:
            yield row, None, str(error)


def _conflicts(kind: ImportKind, source: Source) -> dict[tuple[str, ...], list[int]]:
    """The grades of the pairs that have several; the file is read once to find them, and once more if there are any."""

    def graded() -> Iterator[tuple[tuple[str, ...], int]]:
        return ((item.key, item.values[2]) for _, item, _ in _built(kind, source) if item is not None)

    pairs = conflicts_found(graded())
    return grades_of(graded(), pairs) if pairs else {}


def scale_of(report: ImportReport, base: JudgementSet | None) -> list[str]:
    """The base's, the usual one, or the bare numbers where the file goes on beyond it; none beyond six grades."""
    usual, best = base.scale if base else default_scale(), max(report.grades, default=0)
    if best < len(usual):
        return usual
    return [str(grade) for grade in range(best + 1)] if best + 1 in GRADES_NAMED else []
