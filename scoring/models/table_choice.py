from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


class TableChoice(models.Model):
    """The columns that a person wants to see of one table, in their order."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    table = models.CharField(max_length=64, help_text="the table's name, such as jobs")
    columns = ArrayField(models.CharField(max_length=64), help_text="shown ones, first to last")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "table"), name="table_choice_user_table"),)

    def __str__(self) -> str:
        return f"{self.table}: {', '.join(self.columns)}"
