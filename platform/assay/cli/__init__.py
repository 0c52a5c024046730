"""The console command ``assay``: the client's calls at the shell. It needs ``typer`` beside ``assay.client``."""

from __future__ import annotations

import importlib.util
import sys
from typing import NoReturn


def main() -> NoReturn:
    if importlib.util.find_spec("typer") is None:
        sys.exit("The command `assay` needs typer: pip install 'assay[client]'.")
    from assay.cli.app import main

    main()
