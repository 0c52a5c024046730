"""A process's sign of life as a file, for a container's health check: ``python -m assay.pulse reconciler``.

The file is touched whenever the process reached the database, so its age tells what a process id does not. The check
imports neither Django's applications nor a database driver: it runs every few seconds beside the process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from assay.settings import env

PATIENCE_SECONDS: Final = 30.0


def pulse_file(name: str, *, data_dir: Path) -> Path:
    return data_dir / "pulse" / name


def pulse_beat(name: str, *, data_dir: Path) -> None:
    file = pulse_file(name, data_dir=data_dir)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def pulse_problem(name: str, *, data_dir: Path) -> str | None:
    """Why ``name`` does not count as alive; None where it does."""
    file = pulse_file(name, data_dir=data_dir)
    if not file.exists():
        return f"{name} has not reached the database yet; its log says what it waits for."
    silent = time.time() - file.stat().st_mtime
    if silent > PATIENCE_SECONDS:
        return f"{name} last reached the database {silent:.0f} s ago; its log says why."
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Give the name of a worker, or `reconciler`.")
    sys.exit(pulse_problem(sys.argv[1], data_dir=env.data_dir()))
