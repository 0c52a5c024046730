#!/usr/bin/env python
"""Django's command line, plus the source root ``platform/`` and, where no address is given, local servers."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "platform"))

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError, connection

from assay import embedded
from assay.settings import env

# These read the code only; everything else may ask the database, so its servers are started first.
WITHOUT_SERVERS = {
    "help",
    "version",
    "--help",
    "-h",
    "--version",
    "check",
    "collectstatic",
    "diffsettings",
    "spectacular",
}
# Their log is what they say. The others speak to a person, whose terminal is no place for a log.
SERVICES = {"web", "gpu_worker", "reconciler"}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.dev")
    if sys.argv[1:2] and sys.argv[1] not in SERVICES and not env.given("LOG_LEVEL"):
        logging.disable(logging.INFO)
    wanted = len(sys.argv) > 1 and sys.argv[1] not in WITHOUT_SERVERS
    try:
        with embedded.servers(
            env.data_dir(),
            postgres=wanted and not env.given("DATABASE_URL"),
            redis=wanted and not env.given("REDIS_URL"),
        ):
            execute_from_command_line(sys.argv)
    except (ImproperlyConfigured, embedded.ServerError) as error:
        sys.exit(f"Assay cannot start: {error}")
    except OperationalError as error:
        if connection.connection is not None:
            raise  # a fault of a statement, not of the connection
        from assay.database import unreachable  # reads the settings

        sys.exit(unreachable(error))


if __name__ == "__main__":
    main()
