"""Which operation's answer names what the next one needs: the links of the schema."""

from __future__ import annotations

from typing import Any, Final

METHODS: Final = ("get", "post", "put", "patch", "delete")
# What a body's member is called where a path's parameter has another name.
MEMBERS: Final = {"public_id": "id", "file_id": "id", "batch_id": "id"}
# (operation, operation that can follow, its path parameters or its body by members of the answer)
FURTHER: Final[tuple[tuple[str, str, dict[str, str], dict[str, str]], ...]] = (
    ("api_v1_document_sets_create", "api_v1_jobs_create", {}, {"document_set": "id"}),
    ("api_v1_query_sets_create", "api_v1_jobs_create", {}, {"query_set": "id"}),
    ("api_v1_judgements_create", "api_v1_jobs_evaluation_retrieve", {"judgement_set": "id"}, {}),
    ("api_v1_jobs_clone_create", "api_v1_jobs_retrieve", {"id": "id"}, {}),
    ("api_v1_workers_list", "api_v1_workers_retrieve", {"id": "results/0/id"}, {}),
    ("api_v1_webhooks_test_create", "api_v1_webhook_deliveries_retrieve", {"id": "id"}, {}),
    ("api_v1_webhooks_test_create", "api_v1_webhook_deliveries_replay_create", {"id": "id"}, {}),
    ("v1_files_create", "v1_batches_create", {}, {"input_file_id": "id"}),
    ("v1_batches_retrieve", "v1_files_content", {"file_id": "output_file_id"}, {}),
    ("rerank_create", "api_v1_score_requests_retrieve", {"id": "id"}, {}),
    ("v1_rerank_create", "api_v1_score_requests_retrieve", {"id": "id"}, {}),
    ("v2_rerank_create", "api_v1_score_requests_retrieve", {"id": "id"}, {}),
    ("score_create", "api_v1_score_requests_retrieve", {"id": "id"}, {}),
    ("generative_scoring_create", "api_v1_score_requests_retrieve", {"id": "id"}, {}),
)


def links_add(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Hook of drf-spectacular: from what creates a resource to all that its address serves, and ``FURTHER``."""
    operations = {
        operation["operationId"]: operation
        for item in result["paths"].values()
        for method, operation in item.items()
        if method in METHODS
    }
    for path, item in result["paths"].items():
        inside = [(inner, served) for inner, served in result["paths"].items() if inner.startswith(f"{path}/{{")]
        for inner, served in inside if "post" in item else ():
            parameter = inner.removeprefix(f"{path}/{{").partition("}")[0]
            for following in served.values():
                _link(item["post"], following, {parameter: MEMBERS.get(parameter, parameter)}, {})
    for name, following, parameters, body in FURTHER:
        _link(operations[name], operations[following], parameters, body)
    return result


def _link(
    operation: dict[str, Any], following: dict[str, Any], parameters: dict[str, str], body: dict[str, str]
) -> None:
    link: dict[str, Any] = {"operationId": following["operationId"], "description": following["summary"]}
    if parameters:
        link["parameters"] = {name: f"$response.body#/{member}" for name, member in parameters.items()}
    if body:
        link["requestBody"] = {name: f"$response.body#/{member}" for name, member in body.items()}
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response.setdefault("links", {})[following["operationId"]] = link
