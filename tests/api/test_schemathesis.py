"""The schema is what the server does: requests made from it, good and bad, are answered as it says.

They go to the running platform, by a token of a team of its own: what they delete and revoke is nobody else's.

Of schemathesis' checks one is left out, ``positive_data_acceptance``: a schema cannot tell what one field means for
another, nor what the model that is named can do. Such requests are refused with 422, which every operation lists.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay.settings import env
from scoring.services.bundled import BUNDLED
from tests.api.schema import document
from tests.api.schema_hooks import MODEL
from tests.integration.running import checked, registered
from tests.stack import Stack

pytestmark = pytest.mark.stack
TEAM: Final = "readers of the schema"
FIXED: Final = ("--generation-deterministic", "--no-shrink", "--no-color")


@pytest.fixture(scope="module")
def token(stack: Stack) -> Iterator[str]:
    stack.manage("register_bundled_models")
    registered(stack.client, MODEL, kind="bi-encoder")
    stack.manage("shell", "--command", f"from accounts.models import Team; Team.objects.create(name={TEAM!r})")
    yield stack.manage("create_token", "--name=schema", f"--team={TEAM}", "--scopes", *sorted(ALL_SCOPES)).strip()
    for model in BUNDLED:
        checked(stack.client.patch(f"/api/v1/models/{model['name']}", json={"is_default": True}))
    assert stack.client.post(f"/api/v1/models/{MODEL}/disable").status_code in (200, 409)  # 409: a request did it


@pytest.mark.parametrize(("phases", "examples"), [("examples,coverage,fuzzing", 2), ("stateful", 15)])
def test_the_server_does_what_the_schema_says(
    stack: Stack, token: str, tmp_path: Path, phases: str, examples: int
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(document()))
    result = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(schema), f"--url={stack.base_url}"),
            *(f"--header=Authorization: Bearer {token}", "--exclude-checks=positive_data_acceptance"),
            *(f"--phases={phases}", f"--max-examples={examples}", "--workers=1", "--continue-on-failure"),
            *("--request-timeout=60", "--warnings=off", *FIXED),
        ],
        cwd=tmp_path,
        env=env.for_child({"SCHEMATHESIS_HOOKS": "tests.api.schema_hooks", "PYTHONPATH": str(settings.ROOT)}),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
