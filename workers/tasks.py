"""What Celery calls, by the names in ``scoring.dispatch``. Each hands over at once: no task waits for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import shared_task

from scoring.dispatch import ANSWER_TASK, WAKE_TASK

if TYPE_CHECKING:  # importing it brings torch in
    from workers.process import WorkerProcess

_worker: WorkerProcess | None = None


def serve(worker: WorkerProcess) -> None:
    """Say who runs this process's tasks; Celery gives them no other way to it."""
    global _worker
    _worker = worker


def _served_by() -> WorkerProcess:
    if _worker is None:
        raise RuntimeError("Tasks of workers.tasks run only in a process of `manage.py gpu_worker`.")
    return _worker


@shared_task(name=ANSWER_TASK, ignore_result=True)
def answer(payload: dict[str, Any]) -> None:
    _served_by().sync.answer(payload)


@shared_task(name=WAKE_TASK, ignore_result=True)
def wake() -> None:
    _served_by().wake()
