"""``docker-compose.yml`` and the ``Dockerfile`` name nothing that does not exist. No Docker is needed to see that."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import json
import re
import shlex
from importlib import resources
from typing import Any

import jsonschema
import pytest
import yaml
from django.core.management import get_commands

from assay.settings import env

COMPOSE: dict[str, Any] = yaml.safe_load((env.ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (env.ROOT / "Dockerfile").read_text().replace("\\\n", " ")
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("assay-")}
OF_OTHERS = {"DJANGO_SETTINGS_MODULE", "HF_HUB_OFFLINE", "TRITON_CACHE_DIR", "PATH", "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONUNBUFFERED",
    "PIP_NO_CACHE_DIR",
    "PIP_DISABLE_PIP_VERSION_CHECK",
}


def schema() -> dict[str, Any]:
    """The Compose specification's own, as the package check-jsonschema carries it."""
    folder = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    found: dict[str, Any] = json.loads((folder / "compose-spec.json").read_text())
    return found


MAY_BE_FILES = ("url", "secret", "peppers", "storage", "credentials")


def settings_known() -> dict[str, bool]:
    """Every variable that the settings read, and whether it may come from a file."""
    known = {}
    for path in (env.ROOT / "platform" / "assay" / "settings").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and getattr(node.func.value, "id", "") == "env"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                known[str(node.args[0].value)] = node.func.attr in MAY_BE_FILES
    known["DATA_DIR"] = False
    known |= {"STORAGE_URL_ACCESS_KEY": True, "STORAGE_URL_SECRET_KEY": True}
    return known


def variables_valid() -> set[str]:
    return {name for name in settings_known()} | {f"{name}_FILE" for name, file in settings_known().items() if file}


def test_it_follows_the_compose_specification() -> None:
    jsonschema.validate(COMPOSE, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**COMPOSE, "services": {"web": {"comand": ["x"]}}}, schema())


def test_the_services() -> None:
    assert SERVICES.keys() == {"postgres", "redis", "migrate", "web", "reconciler", "cpu-worker", "gpu-worker"}
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"gpu-worker"}
    (device,) = SERVICES["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    after = {"migrate": {"condition": "service_completed_successfully"}}
    for name in OURS.keys() - {"migrate"}:
        assert SERVICES[name]["depends_on"].items() >= after.items()


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_runs_as_root_or_writes_where_it_need_not(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("root", "0")
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "no-new-privileges:true" in service["security_opt"]
    writable = {*service.get("tmpfs", []), *(volume.partition(":")[2] for volume in service.get("volumes", []))}
    assert "/tmp" in writable
    assert name not in OURS or "/data" in writable
    assert ("healthcheck" in service) == (name != "migrate")  # the one that ends by itself


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_are_files_that_are_given_to_whoever_reads_them(name: str) -> None:
    service = SERVICES[name]
    text = json.dumps({**service, "secrets": None})
    assert set(re.findall(r"/run/secrets/(\w+)", text)) == set(service["secrets"]) <= COMPOSE["secrets"].keys()
    assert not re.search(r"\$\{\w*(PASSWORD|SECRET|PEPPER|KEY)", text), "a secret in the environment is seen by all"


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_one_that_the_settings_know(name: str) -> None:
    assert OURS[name]["environment"].keys() - OF_OTHERS <= variables_valid()


def test_every_variable_of_the_images_is_known_too() -> None:
    given = set(re.findall(r"(?:ENV|RUN|\s)\s*([A-Z][A-Z0-9_]+)=", DOCKERFILE))
    assert {"DATA_DIR", "SECRET_KEY"} <= given
    assert given - OF_OTHERS <= variables_valid()


def test_the_page_of_settings_lists_them_all_and_no_other() -> None:
    table = [line.split("|")[1] for line in (env.ROOT / "docs" / "settings.md").read_text().splitlines() if "|" in line]
    listed = {name: "**F**" in cell for cell in table for name in re.findall(r"`([A-Z0-9_]+)`", cell)}
    assert listed == settings_known()


def commands() -> list[list[str]]:
    """Every program that the two files name, without its shell."""
    texts = [service[key] for service in OURS.values() for key in ("command",) if key in service]
    texts += [service["healthcheck"]["test"] for service in OURS.values() if "healthcheck" in service]
    texts += [json.loads(found) for found in re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)]
    found = []
    for words in texts:
        if words[0] == "CMD-SHELL" or words[:2] == ["sh", "-c"]:
            words = shlex.split(words[-1].replace("$$", "$").removeprefix("exec "))
        found.append([word for word in words if word != "CMD"])
    return found + [line.split() for line in re.findall(r"python manage\.py \w+ --noinput", DOCKERFILE)]


def test_every_command_exists() -> None:
    found = commands()
    assert len(found) >= 10
    for program, *arguments in found:
        assert program == "python"
        if arguments[0] == "manage.py":
            assert arguments[1] in get_commands(), arguments
        elif arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None
        else:
            compile(arguments[1], "<health check>", "exec")


def test_the_images_of_the_services_are_built_by_the_dockerfile() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    built = {service["image"]: service["build"]["target"] for service in OURS.values() if "build" in service}
    assert {service["image"] for service in OURS.values()} == built.keys()
    assert set(built.values()) <= set(stages)
    for stage in re.findall(r"^FROM (\S+) AS", DOCKERFILE, re.MULTILINE):
        assert stage in stages or ":" in stage
    web = DOCKERFILE.partition("AS worker-packages")[0]
    assert "torch" not in "".join(line for line in web.splitlines() if not line.startswith("#"))


def test_everything_copied_exists_and_reaches_docker() -> None:
    let_through = [line[1:] for line in (env.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    ]
    assert len(copied) > 5
    for name in copied:
        assert (env.ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in let_through), name
