"""Tables as files, made in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from assay.client.errors import ClientError
from assay.client.flows import Flow, Pages, Request, Resource, S, listing, operation, resource_path
from assay.client.shapes import Export
from assay.client.waiting import until

MADE: Final = ("done", "failed")


class Exports(Resource[S]):
    @operation
    def ask(self, table: str, *, format: str = "csv", **parameters: Any) -> Flow[Export]:
        """Have a table made into a file: ``documents`` with ``set=``, ``jobs``, ``results`` with ``job=``, ``usage``, …

        ``parameters`` are the filters that the table's own list takes."""
        return self._asked(table, format, parameters)

    @operation
    def get(self, export_id: str) -> Flow[Export]:
        return self._ask("GET", resource_path("exports", export_id))

    @operation
    def wait(self, export_id: str, *, seconds: float | None = None) -> Flow[Export]:
        """The export once its file is made, or could not be (see ``state``). Raises WaitTimeoutError."""
        return self._made(export_id, seconds)

    @operation
    def download(self, export_id: str, target: Path | str | BinaryIO) -> Flow[None]:
        """Write the file of one that is done. At a path, nothing stands until all of it is there."""
        return self._download(resource_path("exports", export_id, "content"), target)

    @operation
    def save(
        self, table: str, target: Path | str | BinaryIO, *, format: str = "csv", **parameters: Any
    ) -> Flow[Export]:
        """All of it: ask, wait, download, and delete the file on the server. Raises ClientError if it failed there."""
        return self._save(table, target, format, parameters)

    @operation
    def delete(self, export_id: str) -> Flow[None]:
        """Or stop one that is being made."""
        return self._ask("DELETE", resource_path("exports", export_id))

    @listing
    def list(self, **filters: Any) -> Pages[Export]:
        """One's own, the newest first."""
        return Pages(Request("GET", resource_path("exports"), params=filters))

    def _asked(self, table: str, format: str, parameters: dict[str, Any]) -> Flow[Export]:
        body = {"table": table, "format": format, "parameters": parameters}
        return self._ask("POST", resource_path("exports"), json=body, repeatable=False)

    def _made(self, export_id: str, seconds: float | None) -> Flow[Export]:
        path = resource_path("exports", export_id)
        return until(lambda: self._ask("GET", path), lambda found: found["state"] in MADE, seconds=seconds)

    def _save(self, table: str, target: Path | str | BinaryIO, format: str, parameters: dict[str, Any]) -> Flow[Export]:
        asked: Export = yield from self._asked(table, format, parameters)
        made: Export = yield from self._made(asked["id"], None)
        if made["state"] != "done":
            raise ClientError(f"The export of {table} failed: {made['error']}")
        yield from self._download(resource_path("exports", made["id"], "content"), target)
        yield from self._ask("DELETE", resource_path("exports", made["id"]))
        return made
