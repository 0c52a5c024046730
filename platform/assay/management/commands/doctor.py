"""Does this installation have what it needs? One line per finding; the exit status says whether all are well."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from assay.doctor import Finding, Status, examine


class Command(BaseCommand):
    help = (
        "Check the database, Redis, queues, workers, disk and clock, and say what to do; exit status 1 if one is ill."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="the findings as a JSON list, for a monitor")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = list(examine())
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            for finding in findings:
                self._write(finding)
        if problems := sum(finding.status is Status.PROBLEM for finding in findings):
            raise CommandError(f"{problems} of {len(findings)} findings are problems.")

    def _write(self, finding: Finding) -> None:
        styles = {Status.OK: self.style.SUCCESS, Status.WARNING: self.style.WARNING, Status.PROBLEM: self.style.ERROR}
        self.stdout.write(f"{finding.part:<13}{styles[finding.status](f'{finding.status:<8}')} {finding.message}")
        if finding.advice:
            self.stdout.write(f"{'':<22}→ {finding.advice}")
