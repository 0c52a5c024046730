"""The queue: what waits for which model, and which jobs are served next."""

from __future__ import annotations

from typing import ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.selectors.queue import jobs_in_queue, queue_reading
from scoring.services.job_control import PAUSABLE
from scoring.states import STOPPABLE_JOB_STATES
from scoring.web.htmx import wants_fragment


class QueueView(PrincipalMixin):
    required_scope: ClassVar[str] = Scope.ADMIN
    stoppable: ClassVar = STOPPABLE_JOB_STATES
    pausable: ClassVar = PAUSABLE

    def get(self, request: HttpRequest) -> HttpResponse:
        context = {"view": self, "reading": queue_reading.get(), "jobs": jobs_in_queue(self.principal)}
        return render(request, "queue/_queue.html" if wants_fragment(request) else "queue/queue.html", context)
