"""What a principal may do, and which of it each role has."""

from __future__ import annotations

from django.db.models import TextChoices


class Scope(TextChoices):
    SCORE = "score", "score and rerank synchronously"
    JOBS = "jobs", "upload sets, run jobs, read results"
    MODELS_READ = "models:read", "see models and workers"
    MODELS_WRITE = "models:write", "register, load and change models"
    ADMIN = "admin", "manage tokens and read the audit log"


class Role(TextChoices):
    ADMIN = "admin"
    ANALYST = "analyst"
    CLIENT = "client"


ALL_SCOPES = frozenset(scope.value for scope in Scope)
ROLE_SCOPES: dict[str, frozenset[str]] = {
    Role.ADMIN: ALL_SCOPES,
    Role.ANALYST: frozenset({Scope.SCORE, Scope.JOBS, Scope.MODELS_READ}),
    Role.CLIENT: frozenset({Scope.SCORE, Scope.MODELS_READ}),
}
