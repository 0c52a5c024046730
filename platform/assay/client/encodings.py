"""Document sets that workers encode ahead."""

from __future__ import annotations

from typing import Any

from assay.client.flows import Flow, Pages, Request, Resource, S, listing, operation, resource_path
from assay.client.shapes import Encoding


class Encodings(Resource[S]):
    @operation
    def ask(self, document_set: str, model: str) -> Flow[dict[str, Any]]:
        """By every worker that holds the model: ``encodings`` has one for each. Raises ConflictError when that is done
        already."""
        body = {"document_set": document_set, "model": model}
        return self._ask("POST", resource_path("encodings"), json=body, repeatable=False)

    @operation
    def estimate(self, document_set: str, model: str) -> Flow[dict[str, Any]]:
        """About how many bytes it takes, and seconds of computing."""
        params = {"document_set": document_set, "model": model}
        return self._ask("GET", resource_path("encodings", "estimate"), params=params)

    @operation
    def get(self, encoding_id: str) -> Flow[Encoding]:
        return self._ask("GET", resource_path("encodings", encoding_id))

    @operation
    def cancel(self, encoding_id: str) -> Flow[Encoding]:
        """What is encoded by then stays."""
        return self._ask("POST", resource_path("encodings", encoding_id, "cancel"))

    @operation
    def delete(self, encoding_id: str) -> Flow[None]:
        """The worker lets go of it within seconds."""
        return self._ask("DELETE", resource_path("encodings", encoding_id))

    @listing
    def list(self, **filters: Any) -> Pages[Encoding]:
        """Newest first; ``filters`` such as ``document_set``, ``model`` or ``state``."""
        return Pages(Request("GET", resource_path("encodings"), params=filters))
