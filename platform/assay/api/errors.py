"""One shape for every refusal: ``{"error": {"message", "type", "param", "code", "request_id"}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404, HttpRequest, JsonResponse, UnreadablePostError
from psycopg.errors import DiskFull
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from assay.api.sentences import shortened, shown
from assay.errors import AssayError

log = structlog.get_logger(__name__)

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "unavailable_error",
    504: "timeout_error",
}


# Of statuses that no standard names: else the log calls them unknown.
REASONS = {499: "Client Closed Request"}


def error_type(status: int) -> str:
    return TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def error_body(error: AssayError, request: HttpRequest | None) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": error.param,
            "code": error.code,
            "request_id": getattr(request, "request_id", None),
            **error.extra,
        }
    }


def error_headers(error: AssayError) -> dict[str, str]:
    if error.retry_after is None:
        return dict(error.headers)
    return {**error.headers, "Retry-After": str(max(1, math.ceil(error.retry_after)))}


def json_error(error: AssayError, request: HttpRequest | None) -> JsonResponse:
    """The same answer outside of DRF views: unknown URLs, CSRF failures, crashes."""
    return JsonResponse(error_body(error, request), status=error.status, headers=error_headers(error))


def exception_handler(raised: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's hook. What nobody foresaw is a 500 with the request id; its cause goes to the log, not to the client."""
    request = context["request"]._request
    error = as_assay_error(raised, context)
    headers = error_headers(error)
    if error.status >= 500 and not isinstance(raised, AssayError):
        log.error("unhandled_exception", path=request.path, exc_info=raised)
    if auth_header := getattr(raised, "auth_header", None):  # set by DRF on a 401
        headers["WWW-Authenticate"] = auth_header
    set_rollback()
    # Whatever was to be rendered: a stream's refusal is JSON too.
    response = Response(
        error_body(error, request), status=error.status, headers=headers, content_type="application/json"
    )
    response.reason_phrase = REASONS.get(error.status, response.reason_phrase)
    return response


def as_assay_error(raised: Exception, context: Mapping[str, Any]) -> AssayError:
    """The refusal that ``raised`` means, in our words; ``context`` is DRF's: the view and the request."""
    view, request = context["view"], context["request"]
    match raised:
        case AssayError():
            return raised
        case exceptions.ValidationError():
            param, message, code = first_problem(raised.detail)
            return AssayError(code, message, status=422, param=param)
        case Http404() | exceptions.NotFound():
            text = str(raised) if isinstance(raised, exceptions.NotFound) else _not_here(view)
            return AssayError("not_found", text, status=404)
        case DjangoPermissionDenied():
            return AssayError("permission_denied", str(raised) or "This is not allowed.", status=403)
        case exceptions.MethodNotAllowed():
            answered = " or ".join(method for method in view.allowed_methods if method not in ("HEAD", "OPTIONS"))
            message = f"{request.method} is not answered here; use {answered}."
            return AssayError("method_not_allowed", message, status=405)
        case exceptions.UnsupportedMediaType():
            given = shown(request.content_type.partition(";")[0])
            accepted = " or ".join(parser.media_type for parser in view.get_parsers())
            return AssayError("unsupported_media_type", f"The Content-Type is {given}; send {accepted}.", status=415)
        case exceptions.NotAcceptable():
            message = f"Nothing of Accept: {shortened(request.headers.get('Accept', ''))} is answered here; take */*."
            return AssayError("not_acceptable", message, status=406)
        case exceptions.NotAuthenticated():
            message = "Nobody is logged in and there is no token; send 'Authorization: Bearer <token>'."
            return AssayError("not_authenticated", message, status=raised.status_code)
        case UnreadablePostError():  # nobody reads this
            return AssayError("client_left", "The client left before its body had come.", status=400)
        case exceptions.ParseError():
            return AssayError("malformed_body", str(raised.detail), status=400)
        case exceptions.APIException():
            codes = raised.get_codes()
            return AssayError(
                codes if isinstance(codes, str) else "error", str(raised.detail), status=raised.status_code
            )
        case Exception() if DiskFull in (type(raised), type(raised.__cause__)):  # Django wraps all but what COPY raises
            message = (
                "The database's disk is full, so nothing of this was stored. Send it again when its operator has made "
                "room."
            )
            return AssayError("no_room", message, status=507)
        case _:
            return AssayError(
                "internal_error", "Something failed on our side; the log has it under this request id.", status=500
            )


def _not_here(view: Any) -> str:
    """Names what the address asked for: by the kind of the view's rows and the last part of the address."""
    model = getattr(view, "model", None)
    noun = model._meta.verbose_name if model is not None else "resource"
    named = [shown(str(value)) for value in getattr(view, "kwargs", {}).values()]
    return f"There is no {noun} {named[-1] if named else 'of this address'} that you may see."


def first_problem(detail: Any, path: str = "") -> tuple[str | None, str, str]:
    """The first leaf of DRF's nested validation detail as (path such as ``documents[3].text``, message, code)."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            if value:
                if key == "non_field_errors":
                    return first_problem(value, path)
                index = isinstance(key, int) or (isinstance(key, str) and key.isdecimal())
                return first_problem(value, f"{path}[{key}]" if index else f"{path}.{key}".lstrip("."))
    elif isinstance(detail, list):
        for position, value in enumerate(detail):
            if isinstance(value, Mapping | list) and value:
                return first_problem(value, f"{path}[{position}]")
            if value and not isinstance(value, Mapping | list):
                return first_problem(value, path)
    return path or None, str(detail) if detail else "The request is not valid.", str(getattr(detail, "code", "invalid"))
