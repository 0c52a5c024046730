"""What several tables share: public ids, owners, checked choices, uploaded sets, sets of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from django.conf import settings
from django.db import models

from scoring.ids import new_id
from scoring.states import SetState

if TYPE_CHECKING:
    from accounts.models import Team


def choice_constraint(
    field: str, choices: type[models.TextChoices], name: str, *, blank: bool = False
) -> models.CheckConstraint:
    """The database refuses what ``choices`` does not list, whoever writes it; ``blank`` allows an empty text too."""
    allowed = ["", *choices.values] if blank else choices.values
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": allowed}), name=name)


Row = TypeVar("Row", bound=models.Model)


class TeamManager(models.Manager[Row]):
    def for_team(self, team: Team) -> models.QuerySet[Row]:
        """Rows of one team only. Another team's row is not found, rather than forbidden."""
        return self.filter(team=team)


class OwnedModel(models.Model):
    """A row that belongs to a team."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.PROTECT, related_name="+")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[TeamManager[Self]] = TeamManager()

    class Meta:
        abstract = True


class UploadedSet(OwnedModel):
    """A set that came from one file. ``counts`` and ``problems`` are the import's report and stay with it."""

    name = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=SetState, default=SetState.RECEIVING)
    file_name = models.CharField(max_length=255)
    file_format = models.CharField(max_length=16)
    checksum = models.CharField(max_length=64, help_text="SHA-256 of the file's bytes")
    mapping = models.JSONField(default=dict, help_text="which column became which field")
    counts = models.JSONField(default=dict, help_text="rows read, kept, bad, empty, duplicate")
    problems = models.JSONField(default=list, help_text="the first problems, each with its line number")
    error = models.TextField(blank=True)

    class Meta(OwnedModel.Meta):
        abstract = True

    def __str__(self) -> str:
        return self.name


class TextSet(UploadedSet):
    """An uploaded set whose rows hold texts. These may be deleted, while ids, scores and rankings stay.

    From the request on, no job may begin over the set; the reconciler empties its rows.
    """

    statistics = models.JSONField(default=dict, help_text="words and characters of its texts, and a histogram of words")
    texts_delete_requested_at = models.DateTimeField(null=True, editable=False)
    texts_deleted_at = models.DateTimeField(null=True, editable=False, help_text="since when its rows have no texts")

    class Meta(UploadedSet.Meta):
        abstract = True
