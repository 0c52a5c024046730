"""The sign of life that a container's health check reads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from assay.pulse import PATIENCE_SECONDS, pulse_beat, pulse_file
from assay.settings import env


def check(data_dir: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay.pulse", *names],
        env=env.for_child({"DATA_DIR": str(data_dir), "PYTHONPATH": str(env.ROOT / "platform")}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_process_is_alive_while_its_file_is_young(tmp_path: Path) -> None:
    unknown = check(tmp_path, "worker-1")
    assert unknown.returncode == 1 and "worker-1 has not reached the database yet" in unknown.stderr
    pulse_beat("worker-1", data_dir=tmp_path)
    assert check(tmp_path, "worker-1").returncode == 0
    past = time.time() - PATIENCE_SECONDS - 10
    os.utime(pulse_file("worker-1", data_dir=tmp_path), (past, past))
    silent = check(tmp_path, "worker-1")
    assert silent.returncode == 1 and "worker-1 last reached the database 4" in silent.stderr
    assert check(tmp_path).returncode == 1


def test_the_check_is_light(tmp_path: Path) -> None:
    heavy = "rest_framework", "psycopg", "scoring"
    code = f"import assay.pulse, sys; sys.exit(str([n for n in {heavy!r} if n in sys.modules] or '') or 0)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=env.ROOT / "platform", capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
