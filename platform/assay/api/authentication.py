"""Bearer tokens for machines, the session with CSRF for the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AnonymousUser, User
from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

if TYPE_CHECKING:
    from accounts.models import ApiToken


class TokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer assay_…``; the request's ``auth`` is then the token row."""

    def authenticate(self, request: Request) -> tuple[User | AnonymousUser, ApiToken] | None:
        from accounts.services import token_authenticate
        from assay.client_address import client_address

        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("The Authorization header must read 'Bearer <token>'.")
        token = token_authenticate(secret=secret.strip(), address=client_address(request._request))
        if token is None:
            raise AuthenticationFailed("The API token is unknown, expired or revoked.")
        return token.created_by or AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="assay"'


class SessionAuthentication(authentication.SessionAuthentication):
    """DRF's own: a logged-in browser, CSRF enforced."""
