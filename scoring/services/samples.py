"""The sample collection in ``examples/``: documents, queries and judgements to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models.base import UploadedSet
from scoring.services.imports import set_import

# (kind, name, file, mapping)
SAMPLES: Final[tuple[tuple[str, str, str, dict[str, Any] | None], ...]] = (
    ("documents", "Household advice", "documents.csv", {"id": "id", "title": "title", "text": "body"}),
    ("queries", "Household questions", "queries.tsv", None),
    ("judgements", "Household judgements", "judgements.txt", None),
)


@dataclass(frozen=True, slots=True)
class Samples:
    documents: UploadedSet
    queries: UploadedSet
    judgements: UploadedSet


def samples_load(*, principal: Principal) -> Samples:
    """Import the samples into the principal's team; what is there already is used as it is.

    Raises AssayError 503 where the installation came without the files.
    """
    loaded = {}
    for kind, name, file_name, mapping in SAMPLES:
        path = settings.EXAMPLES_DIR / file_name
        if not path.is_file():
            raise AssayError("no_samples", f"The sample file {file_name} is not part of this installation.", status=503)
        with path.open("rb") as file:
            loaded[kind], _ = set_import(
                principal=principal,
                kind_name=kind,
                name=name,
                file=file,
                file_name=file_name,
                mapping=mapping,
                use_existing=True,
            )
    return Samples(**loaded)
