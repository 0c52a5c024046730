"""The registry of models, the workers that hold them, and the requests that they answered."""

from __future__ import annotations

from typing import Any, Final

from assay.client.flows import Flow, Pages, Request, Resource, S, given, listing, operation, resource_path
from assay.client.shapes import Model, StoredRequest, Worker
from assay.client.waiting import until

TESTED: Final = ("available", "rejected", "disabled")


class Models(Resource[S]):
    @operation
    def register(
        self, name: str, source: str, *, kind: str | None = None, wait: bool = False, **fields: Any
    ) -> Flow[Model]:
        """``fields`` such as ``dtype`` or ``gpu_maxsim``. ``wait`` until a worker has tested it (look at ``state``)."""
        return self._register({"name": name, "source": source, **given(kind=kind), **fields}, wait)

    def _register(self, body: dict[str, Any], wait: bool) -> Flow[Model]:
        model: Model = yield from self._ask("POST", resource_path("models"), json=body, repeatable=False)
        if not wait:
            return model
        path = resource_path("models", model["name"])
        return (yield from until(lambda: self._ask("GET", path), lambda found: found["state"] in TESTED))

    @operation
    def get(self, name: str) -> Flow[Model]:
        return self._ask("GET", resource_path("models", name))

    @operation
    def change(self, name: str, **fields: Any) -> Flow[Model]:
        return self._ask("PATCH", resource_path("models", name), json=fields)

    @operation
    def self_test(self, name: str) -> Flow[Model]:
        return self._ask("POST", resource_path("models", name, "self-test"))

    @operation
    def disable(self, name: str) -> Flow[Model]:
        return self._ask("POST", resource_path("models", name, "disable"))

    @operation
    def load(self, name: str) -> Flow[dict[str, Any]]:
        return self._ask("POST", resource_path("models", name, "load"))

    @operation
    def unload(self, name: str) -> Flow[dict[str, Any]]:
        return self._ask("POST", resource_path("models", name, "unload"))

    @operation
    def reload(self, name: str) -> Flow[dict[str, Any]]:
        return self._ask("POST", resource_path("models", name, "reload"), repeatable=False)

    @listing
    def list(self, **filters: Any) -> Pages[Model]:
        """All that are registered; ``cards()`` of the client shows those that answer requests."""
        return Pages(Request("GET", resource_path("models"), params=filters))

    @operation
    def point_alias(self, alias: str, name: str) -> Flow[dict[str, Any]]:
        """Make ``alias`` another name of the model ``name``, or move it there in one step."""
        return self._ask("PUT", resource_path("model-aliases", alias), json={"model": name})

    @operation
    def delete_alias(self, alias: str) -> Flow[None]:
        return self._ask("DELETE", resource_path("model-aliases", alias))

    @listing
    def aliases(self, **filters: Any) -> Pages[dict[str, Any]]:
        return Pages(Request("GET", resource_path("model-aliases"), params=filters))


class Workers(Resource[S]):
    @operation
    def get(self, worker_id: str) -> Flow[Worker]:
        return self._ask("GET", resource_path("workers", worker_id))

    @operation
    def drain(self, worker_id: str, *, reason: str) -> Flow[Worker]:
        return self._ask("POST", resource_path("workers", worker_id, "drain"), json={"reason": reason})

    @operation
    def maintenance(self, worker_id: str, *, reason: str, until: str | None = None) -> Flow[Worker]:
        """``until``: when it ends by itself, in ISO 8601; None: never."""
        body = {"reason": reason, **given(until=until)}
        return self._ask("POST", resource_path("workers", worker_id, "maintenance"), json=body)

    @operation
    def resume(self, worker_id: str, *, reason: str) -> Flow[Worker]:
        return self._ask("POST", resource_path("workers", worker_id, "resume"), json={"reason": reason})

    @operation
    def release(self, worker_id: str, *, reason: str) -> Flow[Worker]:
        """From quarantine."""
        return self._ask("POST", resource_path("workers", worker_id, "release"), json={"reason": reason})

    @listing
    def list(self, **filters: Any) -> Pages[Worker]:
        return Pages(Request("GET", resource_path("workers"), params=filters))


class ScoreRequests(Resource[S]):
    @operation
    def get(self, request_id: str) -> Flow[StoredRequest]:
        return self._ask("GET", resource_path("score-requests", request_id))

    @listing
    def list(self, **filters: Any) -> Pages[StoredRequest]:
        """Newest first."""
        return Pages(Request("GET", resource_path("score-requests"), params=filters))
