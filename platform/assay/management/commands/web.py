"""``manage.py web``: the web server alone, as the settings say; databases and workers run elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from assay.settings import env
from assay.supervisor import web_command, web_environment


class Command(BaseCommand):
    help = "Run the web server in place of this process, on WEB_HOST and WEB_PORT."

    def handle(self, *arguments: Any, **options: Any) -> None:
        command = web_command(settings.WEB_HOST, settings.WEB_PORT, settings.WEB_PROCESSES)
        os.execve(command[0], command, env.for_child(web_environment(Path(settings.DATA_DIR))))
