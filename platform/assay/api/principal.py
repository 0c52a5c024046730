"""Who asks, for which team, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated, PermissionDenied

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from rest_framework.request import Request

    from accounts.models import ApiToken, Team


@dataclass(frozen=True)
class Principal:
    """A person in the browser (``token`` is None) or a machine with a token (``user`` is who created it, if known)."""

    user: User | None
    team: Team
    token: ApiToken | None
    scopes: frozenset[str]

    @property
    def label(self) -> str:
        if self.token is not None:
            return f"token {self.token.name}"
        return self.user.get_username() if self.user is not None else "system"

    @property
    def allowed_models(self) -> frozenset[str]:
        """Names of the only models that it may use; empty: all. A person is not limited."""
        return frozenset(self.token.allowed_models) if self.token is not None else frozenset()

    def may_use(self, model_name: str) -> bool:
        return not self.allowed_models or model_name in self.allowed_models

    def require_model(self, model_name: str, *, asked: str = "") -> None:
        """Raises PermissionDenied for a model that the token is not for, whether it is registered or not.

        ``asked``: the alias that it was named by; whoever may not use the model is not told which one that is.
        """
        if not self.may_use(model_name):
            raise PermissionDenied(
                f"The {self.label} may not use the model '{asked or model_name}'; it may use: "
                f"{', '.join(sorted(self.allowed_models))}."
            )

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def require_scope(self, scope: str) -> None:
        if not self.may(scope):
            raise PermissionDenied(
                f"This needs the scope '{scope}'; {self.label} has: {', '.join(sorted(self.scopes)) or 'none'}."
            )


def principal_of(request: Request | HttpRequest) -> Principal:
    """The principal of an API request or a page request; worked out once per request.

    Raises NotAuthenticated when nobody is logged in.
    """
    from accounts.services import principal_of_token, principal_of_user

    django_request: Any = getattr(request, "_request", request)  # carries the answer for the rest of the request
    known = getattr(django_request, "assay_principal", None)
    if known is None:
        token = getattr(request, "auth", None)
        if token is not None:
            known = principal_of_token(token)
        elif request.user.is_authenticated:
            known = principal_of_user(request.user)
        else:
            raise NotAuthenticated()
        django_request.assay_principal = known
    return known
