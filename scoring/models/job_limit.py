from __future__ import annotations

from django.conf import settings
from django.db import models


class JobLimit(models.Model):
    """How much one person of a team may have open at once; without a ``user``, everybody of the team who has no row.

    What is empty is the installation's own limit (``JOBS_RUNNING_PER_USER`` and its neighbours).
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="job_limits")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="job_limits"
    )
    running_jobs = models.PositiveIntegerField(null=True, blank=True, help_text="given to the workers at once")
    waiting_jobs = models.PositiveIntegerField(null=True, blank=True, help_text="scheduled, held back or paused")
    open_pairs = models.PositiveBigIntegerField(null=True, blank=True, help_text="of all jobs that have not ended")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("team", "user"), nulls_distinct=False, name="job_limit_of_user"),
        )

    def __str__(self) -> str:
        return f"{self.user or 'everybody'} of {self.team}"
