"""What docs/deploy.md tells people to type works as it stands there."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from assay.settings import env
from assay.supervisor import manage_command

PAGE = (env.ROOT / "docs" / "deploy.md").read_text()


def lines_under(heading: str) -> str:
    found = re.search(r"```bash\n(.*?)```", PAGE.partition(f"### {heading}\n")[2], re.DOTALL)
    assert found is not None
    return found[1]


def test_the_lines_that_make_secrets_make_what_production_accepts(tmp_path: Path) -> None:
    subprocess.run(["bash", "-euc", lines_under("Secrets")], cwd=tmp_path, check=True, timeout=30)
    folder = tmp_path / "secrets"
    made = {file.name: file.read_text().strip() for file in folder.iterdir()}
    assert made.keys() == yaml.safe_load((env.ROOT / "docker-compose.yml").read_text())["secrets"].keys()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert urlsplit(made["database_url"]).password == made["postgres_password"]
    assert urlsplit(made["redis_url"]).password == made["redis_password"]
    given = {
        f"{name.upper()}_FILE": str(folder / name)
        for name in ("secret_key", "token_peppers", "database_url", "redis_url")
    }
    environment = {
        "DJANGO_SETTINGS_MODULE": "assay.settings.production",
        "DATA_DIR": str(tmp_path / "data"),
        "ALLOWED_HOSTS": "assay.example",
        **dict.fromkeys(("SECRET_KEY", "TOKEN_PEPPERS", "DATABASE_URL", "REDIS_URL"), ""),
    }
    command = manage_command("check", "--deploy", "--fail-level", "WARNING")
    result = subprocess.run(
        command, env=env.for_child(environment | given), capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_tests_it_points_to_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert len(named) >= 3
    assert [name for name in named if not (env.ROOT / name).is_file()] == []
