"""Teams, memberships and API tokens. Users are Django's own."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from accounts.limits import QuotaLimits
from accounts.scopes import Role, Scope
from assay.token_form import PREFIX


class Team(QuotaLimits):
    """The owner of sets, jobs and tokens: another team's rows do not exist for its members."""

    name = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.ANALYST)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "team"], name="membership_once_per_team"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} as {self.role} of {self.team}"


class ApiToken(QuotaLimits):
    """A secret of a machine. Only its keyed hash is stored, with the id of the pepper that made it."""

    public_id = models.CharField(max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=100)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="tokens")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="tokens"
    )
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope.choices))
    allowed_models = ArrayField(
        models.CharField(max_length=64), default=list, db_default=[], blank=True,
        help_text="Names of the only models that it may use, separated by commas; empty: all",
    )  # fmt: skip
    allowed_networks = ArrayField(
        models.CharField(max_length=43), default=list, db_default=[], blank=True,
        help_text="The only networks that it may be used from, such as 10.0.0.0/8, separated by commas; empty: all",
    )  # fmt: skip
    pepper_id = models.PositiveIntegerField(editable=False)
    digest = models.CharField(max_length=64, editable=False)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API token"
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(scopes__contained_by=Scope.values), name="apitoken_scopes_known"),
            models.CheckConstraint(condition=models.Q(scopes__len__gt=0), name="apitoken_has_scopes"),
            models.CheckConstraint(
                condition=models.Q(digest__regex=r"^[0-9a-f]{64}$"), name="apitoken_digest_is_sha256"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"

    @property
    def prefix(self) -> str:
        """The part of the secret that may be shown: it tells which token it is."""
        return f"{PREFIX}{self.public_id}"
