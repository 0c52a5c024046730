"""The folder ``platform`` must stay a plain folder, and the web process must stay light."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = ("manage.py", "platform", "scoring", "workers", "templates", "tests", "docker-compose.yml")


def python(code: str, *, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in ``root``, which is then first on its import path."""
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)


def test_the_top_level_names_exist() -> None:
    assert [name for name in TOP_LEVEL if not (ROOT / name).exists()] == []


def test_platform_holds_no_module_of_its_own() -> None:
    assert list((ROOT / "platform").glob("*.py")) == []


def test_a_fresh_interpreter_finds_the_standard_library_s_platform_module() -> None:
    result = python("import platform, torch, celery, wsgiref.simple_server; print(platform.system())")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_the_guard_above_fails_when_platform_becomes_a_package(tmp_path: Path) -> None:
    """The same check in a copy of the layout with the mistake made: a guard that never fails guards nothing."""
    (tmp_path / "platform").mkdir()
    assert python("import platform; platform.system()", root=tmp_path).returncode == 0
    (tmp_path / "platform" / "__init__.py").touch()
    assert python("import platform; platform.system()", root=tmp_path).returncode != 0


@pytest.mark.parametrize("module", ["assay.asgi", "scoring.urls", "workers", "workers.engine.types"])
def test_importing_it_does_not_import_torch(module: str) -> None:
    code = f"""
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "assay.settings.dev"
import django; django.setup()
import {module}
from django.urls import get_resolver
get_resolver().url_patterns
heavy = [name for name in ("torch", "transformers", "tokenizers", "safetensors") if name in sys.modules]
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_the_wheel_s_packages_are_the_source_roots() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["platform/assay", "platform/accounts", "platform/audit", "scoring", "workers"]
    assert all((ROOT / package / "__init__.py").is_file() for package in packages)


def test_nothing_is_imported_through_the_folder_s_name() -> None:
    through = re.compile(r"^\s*(import|from) platform\.", re.MULTILINE)
    sources = [path for top in ("platform", "scoring", "workers", "tests") for path in (ROOT / top).rglob("*.py")]
    assert len(sources) > 50
    assert [str(path) for path in sources if through.search(path.read_text(encoding="utf-8"))] == []
