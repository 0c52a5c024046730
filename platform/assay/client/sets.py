"""What is uploaded: document sets, query sets, judgements and runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from assay.client.flows import Flow, Pages, Request, Resource, S, Upload, listing, operation, resource_path
from assay.client.shapes import UploadedSet

OnProgress = Callable[[int, int], None]


class Sets(Resource[S]):
    """One kind of set; ``rows`` is the last part of the address of its rows."""

    def __init__(self, session: S, kind: str, rows: str) -> None:
        super().__init__(session)
        self._kind = kind
        self._rows = rows

    @operation
    def upload(
        self, file: Path | str | BinaryIO, *, name: str | None = None, mapping: Mapping[str, Any] | None = None,
        keep_good_rows: bool = False, use_existing: bool = True, on_progress: OnProgress | None = None,
    ) -> Flow[UploadedSet]:  # fmt: skip
        """Send a file from disk as it is read, whatever its size.

        ``mapping`` says which column becomes which field, such as ``{"text": "body"}``; what it leaves out is guessed.
        ``use_existing``: the same bytes again are the set that was made of them, else a ConflictError.
        ``on_progress`` is told the bytes sent and the bytes in all. A file that is open must be seekable.
        """
        form = {
            **({"name": name} if name is not None else {}),
            **({"mapping": json.dumps(mapping)} if mapping is not None else {}),
            "keep_good_rows": json.dumps(keep_good_rows),
            "use_existing": json.dumps(use_existing),
        }
        return self._upload(file, form, on_progress)

    def _upload(
        self, source: Path | str | BinaryIO, form: Mapping[str, str], on_progress: OnProgress | None
    ) -> Flow[Any]:
        if isinstance(source, Path | str):
            with Path(source).open("rb") as file:
                return (yield from self._upload(file, form, on_progress))
        name = Path(str(getattr(source, "name", "upload"))).name
        # The same bytes twice make one set.
        repeatable = form["use_existing"] == "true"
        upload = Upload(source, name, on_progress)
        return (
            yield from self._ask(
                "POST", resource_path(self._kind), form=form, upload=upload, repeatable=repeatable
            )
        )  # fmt: skip

    @operation
    def get(self, set_id: str) -> Flow[UploadedSet]:
        return self._ask("GET", resource_path(self._kind, set_id))

    @operation
    def delete(self, set_id: str) -> Flow[None]:
        """Raises ConflictError while a job refers to it."""
        return self._ask("DELETE", resource_path(self._kind, set_id))

    @listing
    def rows(self, set_id: str, **filters: Any) -> Pages[dict[str, Any]]:
        """Its documents, queries, judgements or run entries, in the order of the file."""
        return Pages(Request("GET", resource_path(self._kind, set_id, self._rows), params=filters))

    @listing
    def list(self, **filters: Any) -> Pages[UploadedSet]:
        """Newest first."""
        return Pages(Request("GET", resource_path(self._kind), params=filters))
