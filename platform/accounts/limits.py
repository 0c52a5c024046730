"""What a team or a token may use. Counting it is in ``accounts.quotas``."""

from __future__ import annotations

from django.db import models


class Quota(models.TextChoices):
    """Each is a column of ``QuotaLimits``."""

    REQUESTS = "requests_per_minute", "requests per minute"
    DOCUMENTS = "documents_per_day", "documents per day"
    IN_FLIGHT = "requests_in_flight", "requests in flight"
    PAIRS = "open_pairs", "pairs of jobs that have not ended"


class QuotaLimits(models.Model):
    """A row whose holder is limited. Empty: no limit. A token's use counts for its team as well."""

    requests_per_minute = models.PositiveIntegerField(null=True, blank=True, help_text="synchronous ones")
    documents_per_day = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="scored synchronously, once for each query; a day is one of UTC"
    )
    requests_in_flight = models.PositiveIntegerField(null=True, blank=True, help_text="synchronous ones, at once")
    open_pairs = models.PositiveBigIntegerField(null=True, blank=True, help_text="of all jobs that have not ended")

    class Meta:
        abstract = True
