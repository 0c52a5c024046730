"""Whether the ids that a file names are those of the sets it is meant for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from scoring.ingest.seen import SeenKeys
from scoring.models import DocumentSet, QuerySet

SHOWN: Final = 20
LEAST_SHARE: Final = 0.01


@dataclass(slots=True)
class IdCheck:
    """Counts while rows pass by. Of a set that was not chosen every id is known."""

    query_set: QuerySet | None = None
    document_set: DocumentSet | None = None
    rows: int = 0
    matched: int = 0
    _known: list[SeenKeys | None] = field(default_factory=list)
    _unknown: list[SeenKeys] = field(default_factory=lambda: [SeenKeys(), SeenKeys()])
    unknown: list[int] = field(default_factory=lambda: [0, 0])  # different ids: queries, documents
    first: list[list[str]] = field(default_factory=lambda: [[], []])

    def __post_init__(self) -> None:
        queries = self.query_set and self.query_set.queries.values_list("external_id", flat=True)
        documents = self.document_set and self.document_set.documents.values_list("external_id", flat=True)
        self._known = [_seen(queries), _seen(documents)]

    @property
    def asked(self) -> bool:
        return self.query_set is not None or self.document_set is not None

    @property
    def too_few(self) -> bool:
        """Whether these can hardly be the sets that the file is about."""
        return self.asked and self.rows > 0 and self.matched < LEAST_SHARE * self.rows

    def problem(self, query_id: str, document_id: str) -> str:
        """Count the row; what it names that the sets do not have, or nothing."""
        problems = []
        for place, (known, key) in enumerate(zip(self._known, (query_id, document_id), strict=True)):
            if known is None or known.has(key):
                continue
            noun, chosen = (("query", self.query_set), ("document", self.document_set))[place]
            problems.append(f"'{chosen}' has no {noun} {key!r}")
            if self._unknown[place].add(key):
                self.unknown[place] += 1
                if len(self.first[place]) < SHOWN:
                    self.first[place].append(key)
        self.rows += 1
        self.matched += not problems
        return "; ".join(problems)

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "matched": self.matched,
            "unknown_queries": self.unknown[0],
            "unknown_documents": self.unknown[1],
            "first_unknown_queries": self.first[0],
            "first_unknown_documents": self.first[1],
        }


def _seen(ids: Any) -> SeenKeys | None:
    if ids is None:
        return None
    seen = SeenKeys()
    for key in ids.iterator(chunk_size=10_000):
        seen.add(key)
    return seen
