"""What a team or a token may use. Counting it is in ``accounts.quotas``."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models


class Quota(models.TextChoices):
    """Each is a column of ``QuotaLimits``."""

    REQUESTS = "requests_per_minute", "requests per minute"
    DOCUMENTS = "documents_per_day", "documents per day"
    IN_FLIGHT = "requests_in_flight", "requests in flight"
    PAIRS = "open_pairs", "pairs of jobs that have not ended"

    @property
    def least(self) -> int:
        """Of a rate: with none at all every request would be told to come again, for ever."""
        return 1 if self in (Quota.REQUESTS, Quota.IN_FLIGHT) else 0


class QuotaLimits(models.Model):
    """A row whose holder is limited. Empty: no limit. A token's use counts for its team as well."""

    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="synchronous ones"
    )
    documents_per_day = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="scored synchronously, once for each query; a day is one of UTC"
    )
    requests_in_flight = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="synchronous ones, at once"
    )
    open_pairs = models.PositiveBigIntegerField(null=True, blank=True, help_text="of all jobs that have not ended")

    class Meta:
        abstract = True
