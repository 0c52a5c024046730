"""Bars on standard error; where that is no terminal, a line for every change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from assay.cli.output import say
from assay.client.shapes import Job


@contextmanager
def upload_bar(name: str) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        bar = bars.add_task(name, total=None)
        yield lambda sent, total: bars.update(bar, completed=sent, total=total)


@contextmanager
def job_bar() -> Iterator[Callable[[Job], None]]:
    """Pairs done, their rate and the time that is left as the server reckons them, and why a job waits."""
    if not sys.stderr.isatty():
        yield _Changes()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns: tuple[Any, ...] = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TextColumn("{task.fields[how]}", markup=False), console=Console(stderr=True)) as bars:
        bar = bars.add_task("job", total=None, how="")

        def update(job: Job) -> None:
            done = job["progress"]
            bars.update(
                bar, description=job["state"], completed=done["pairs_done"], total=done["pairs_total"], how=pace(job)
            )

        yield update


class _Changes:
    def __init__(self) -> None:
        self._said = ""

    def __call__(self, job: Job) -> None:
        line = f"{job['id']}  {job['state']}  {job['progress']['reason']}".rstrip()
        if line != self._said:
            say(line)
        self._said = line


def pace(job: Job) -> str:
    progress = job["progress"]
    if progress["reason"]:
        return progress["reason"]
    parts = []
    if progress["rate"]:
        parts.append(f"{progress['rate']:,.0f} pairs/s")
    if progress["eta_seconds"] is not None:
        parts.append(f"{duration(progress['eta_seconds'])} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
