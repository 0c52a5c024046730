"""The buttons of a job's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from django import forms
from django.urls import reverse

from accounts.scopes import Scope
from assay.errors import AssayError
from scoring.models import Job
from scoring.services.job_control import job_cancel, job_clone, job_pause, job_resume
from scoring.services.job_retry import job_retry
from scoring.services.jobs import PRIORITIES, job_change, job_delete
from scoring.web.actions import ActionView
from scoring.web.jobs import job_or_404

Move = Callable[..., Job]
MOVES: Final[dict[str, tuple[Move, str]]] = {
    "pause": (job_pause, "Job “{}” is paused: what workers have in hand comes back within a moment."),
    "resume": (job_resume, "Job “{}” goes on."),
    "cancel": (job_cancel, "Job “{}” is being cancelled. What was scored already stays."),
    "retry": (job_retry, "Job “{}” is queued again with what is unfinished. What was scored already stays."),
}
STEPS: Final = {"raise": 10, "lower": -10}  # of the priority


class JobChangeForm(forms.Form):
    name = forms.CharField(max_length=200)
    priority = forms.IntegerField(
        min_value=PRIORITIES[0], max_value=PRIORITIES[-1], help_text="From -100 to 100; higher runs first."
    )
    complete_within = forms.IntegerField(
        label="Seconds to be done in",
        required=False,
        min_value=1,
        help_text="Since it joined the queue. Empty: no limit.",
    )


class JobActionView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS
    move: str = ""  # what the address ends with, where one view does several

    def job(self) -> Job:
        return job_or_404(self, self.kwargs["pk"])

    def after(self) -> str:
        """The job's page; the queue, at the button that was pressed there, for who came from it."""
        if self.request.POST.get("back") == "queue":
            return f"{reverse('web:queue')}#{self.move}-{self.kwargs['pk']}"
        return reverse("web:job_detail", args=[self.kwargs["pk"]])


class JobMoveView(JobActionView):
    """One of MOVES."""

    def act(self) -> str:
        service, said = MOVES[self.move]
        return said.format(service(principal=self.principal, job=self.job()).name)


class JobPriorityView(JobActionView):
    """One of STEPS up or down the queue."""

    def act(self) -> str:
        job = self.job()
        wanted = min(max(job.priority + STEPS[self.move], PRIORITIES[0]), PRIORITIES[-1])
        job = job_change(principal=self.principal, job=job, priority=wanted)
        return f"Job “{job.name}” has priority {job.priority} now."


class JobChangeView(JobActionView):
    def act(self) -> str:
        job, form = self.job(), JobChangeForm(self.request.POST)
        if not form.is_valid():
            field, errors = next(iter(form.errors.get_json_data().items()))
            raise AssayError("invalid", f"{form[field].label}: {errors[0]['message']}")
        job = job_change(principal=self.principal, job=job, **form.cleaned_data)
        return f"Job “{job.name}” is changed."


class JobCloneView(JobActionView):
    clone: Job | None = None

    def act(self) -> str:
        self.clone, _ = job_clone(principal=self.principal, job=self.job())
        return (
            f"This is a new job with the sets, stages and settings of “{self.clone.name}”, by the models as they are."
        )

    def after(self) -> str:
        return reverse("web:job_detail", args=[self.clone.pk]) if self.clone else super().after()


class JobDeleteView(JobActionView):
    deleted = False

    def act(self) -> str:
        job = self.job()
        job_delete(principal=self.principal, job=job)
        self.deleted = True
        return f"Job “{job.name}” is deleted, with its results and its log."

    def after(self) -> str:
        return reverse("web:job_list") if self.deleted else super().after()


def change_form(job: Job) -> JobChangeForm:
    """Filled with what is."""
    initial: dict[str, Any] = {name: getattr(job, name) for name in JobChangeForm.base_fields}
    return JobChangeForm(initial=initial)
