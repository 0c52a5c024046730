"""The schema is what the server does: requests made from it, good and bad, are answered as it says.

They go to the running platform, by a token of a team of its own: what they delete and revoke is nobody else's. Models
and workers belong to all teams: where a request names one of them to change it, it gets the model that is there for it,
or a worker that does not exist.

Of schemathesis' checks one is left out, ``positive_data_acceptance``: a schema cannot tell what one field means for
another, nor what the model that is named can do. Such requests are refused with 422, which every operation lists.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.schemas import BaseSchema

from accounts.scopes import ALL_SCOPES
from scoring.services.bundled import BUNDLED
from tests.api.schema import document
from tests.integration.running import checked, registered
from tests.stack import Stack

pytestmark = pytest.mark.stack
TEAM: Final = "readers of the schema"
MODEL: Final = "of-the-schema"
SECONDS: Final = 60
SAME_FAULT: Final = 2  # of the many values that are of a wrong type for one field, and the like
CONFIG: Final[dict[str, Any]] = {
    "seed": 1,
    "generation": {"deterministic": True, "max-examples": 3, "no-shrink": True},
    "phases": {"coverage": {"unexpected-methods": ["TRACE"]}},
    "checks": {"positive_data_acceptance": {"enabled": False}},
}
operations = schemathesis.pytest.from_fixture("api_schema")


@pytest.fixture(scope="module")
def api_schema() -> BaseSchema:
    return schemathesis.openapi.from_dict(document(), config=SchemathesisConfig.from_dict(CONFIG))


@pytest.fixture(scope="module")
def session(stack: Stack) -> Iterator[requests.Session]:
    """Keeps its connection and carries the team's token."""
    stack.manage("register_bundled_models")
    registered(stack.client, MODEL, kind="bi-encoder")
    stack.manage("shell", "--command", f"from accounts.models import Team; Team.objects.create(name={TEAM!r})")
    token = stack.manage("create_token", "--name=schema", f"--team={TEAM}", "--scopes", *sorted(ALL_SCOPES)).strip()
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        yield session
    for model in BUNDLED:
        checked(stack.client.patch(f"/api/v1/models/{model['name']}", json={"is_default": True}))
    checked(stack.client.post(f"/api/v1/models/{MODEL}/disable"))


@pytest.fixture(scope="module")
def tried() -> Counter[tuple[str, str]]:
    """By operation and fault how many requests had it."""
    return Counter()


def spare_others(case: schemathesis.Case) -> None:
    path = case.operation.path
    if path.startswith("/api/v1/models/{name}"):
        case.path_parameters["name"] = MODEL
    if path.startswith("/api/v1/workers/{id}/"):
        case.path_parameters["id"] = str(uuid.uuid4())


@operations.parametrize()
def test_an_operation_answers_as_the_schema_says(
    case: schemathesis.Case, session: requests.Session, stack: Stack, tried: Counter[tuple[str, str]]
) -> None:
    data = case.meta.phase.data if case.meta else None
    if description := getattr(data, "description", None):
        tried[case.operation.label, description] += 1
        if tried[case.operation.label, description] > SAME_FAULT:
            return
    spare_others(case)
    case.call_and_validate(base_url=stack.base_url, session=session, timeout=SECONDS)


def test_what_an_answer_links_to_answers_as_the_schema_says(
    api_schema: BaseSchema, session: requests.Session, stack: Stack
) -> None:
    class Following(api_schema.as_state_machine()):  # type: ignore[misc]  # made of the schema's links
        def before_call(self, case: schemathesis.Case) -> None:
            spare_others(case)

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": stack.base_url, "session": session, "timeout": SECONDS}

    Following.run(
        settings=hypothesis.settings(
            max_examples=15,
            stateful_step_count=6,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
    )
