"""One permission: the principal's scopes hold the one that the view names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from rest_framework.permissions import SAFE_METHODS, BasePermission

from assay.api.principal import principal_of

if TYPE_CHECKING:  # the views import the default permission classes while they are themselves being imported
    from rest_framework.request import Request
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """Reads ``required_scope`` of the view, and ``write_scope`` (if it has one) for methods that change something."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = getattr(view, "required_scope", None)
        if request.method not in SAFE_METHODS:
            scope = getattr(view, "write_scope", None) or scope
        if scope is None:
            raise ImproperlyConfigured(f"{type(view).__name__} names no required_scope, so nobody may use it.")
        principal_of(request).require_scope(scope)
        return True
