"""Rows of judgements that grade one pair twice, and what is done where they do not agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from django.db.models import TextChoices

from scoring.ingest.seen import SeenKeys

Pair = tuple[str, ...]
MOST: Final = 1_000_000  # of such pairs; a file with more has another fault
SHOWN: Final = 6


class ConflictRule(TextChoices):
    REJECT = "reject", "leave them out: each such row is a problem"
    LAST = "last", "keep the last row"
    JUDGES = "judges", "take them for several judges: the median (of two, the lower)"

    def grade(self, grades: Sequence[int]) -> int | None:
        """The one grade of a pair that was given ``grades`` in this order; None where it is left out."""
        if self == ConflictRule.REJECT:
            return None
        return grades[-1] if self == ConflictRule.LAST else sorted(grades)[(len(grades) - 1) // 2]


def conflicts_found(graded: Iterable[tuple[Pair, int]]) -> set[Pair]:
    """The pairs that have more than one grade."""
    pairs, grades, found = SeenKeys(), SeenKeys(), set[Pair]()
    for pair, grade in graded:
        known = not pairs.add(pair)
        if grades.add((pair, grade)) and known and len(found) < MOST:
            found.add(pair)
    return found


def grades_of(graded: Iterable[tuple[Pair, int]], pairs: set[Pair]) -> dict[Pair, list[int]]:
    """All grades of ``pairs``, in the order of the file."""
    grades: dict[Pair, list[int]] = {pair: [] for pair in pairs}
    for pair, grade in graded:
        if pair in grades:
            grades[pair].append(grade)
    return grades


def conflict_told(grades: Sequence[int]) -> str:
    listed = ", ".join(map(str, grades[:SHOWN])) + (", …" if len(grades) > SHOWN else "")
    return f"the pair has the grades {listed}; choose what becomes of such pairs, or mend the file"
