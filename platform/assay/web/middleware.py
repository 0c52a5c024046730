"""What every request passes: its id, the probes' short way out, and its count."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import ClassVar
from urllib.parse import unquote_plus

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from uuid_utils.compat import uuid7

from assay import health, metrics
from assay.api.errors import json_error
from assay.errors import AssayError
from assay.token_form import holds_token

logger = logging.getLogger(__name__)

USABLE_ID = re.compile(r"[\x21-\x7e]{1,128}")

GetResponse = Callable[[HttpRequest], HttpResponse]


class RequestIdMiddleware:
    """Takes over a client's X-Request-Id for logs and answers. It is a label only: clients may repeat it at will."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        usable = USABLE_ID.fullmatch(given) and not holds_token(given)
        request_id = given if usable else str(uuid7())
        request.request_id = request_id  # type: ignore[attr-defined]
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class ProbeMiddleware:
    """Answers probes before host names, TLS and sessions matter: a cluster asks by address, in plain HTTP."""

    probes: ClassVar[dict[str, GetResponse]] = {
        "/livez": health.livez,
        "/readyz": health.readyz,
        "/health": health.readyz,
        "/metrics": metrics.metrics_view,
    }

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.probes.get(request.path, self.get_response)(request)


class BodyLengthMiddleware:
    """Refuses a body by its announced length, before a byte of it is read.

    Without a length Django takes a body for an empty one, and every later message would mislead.
    """

    beside_the_file: ClassVar[int] = 1 << 16  # a form's other fields and its borders
    drained: ClassVar[int] = 1 << 20

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        announced = request.headers.get("Content-Length", "")
        if "Transfer-Encoding" in request.headers and not announced:
            message = "The body came in chunks of unknown number; send it with a Content-Length header."
            return json_error(AssayError("length_required", message, status=411), request)
        length, limit = int(announced) if announced.isdigit() else 0, settings.UPLOAD_MAX_BYTES
        if length > limit + self.beside_the_file:
            message = f"The body has {length:,} bytes; the limit of this server is {limit:,}. Split it."
            return json_error(AssayError("file_too_large", message, status=413, param="file"), request)
        response = self.get_response(request)
        if response.status_code >= 400 and 0 < length <= self.drained:
            # An answer that left the body unread makes the server cut the connection, which fails the client's next
            # request on it. What is small is read to its end; cutting off what is large is right.
            request.META["wsgi.input"].read()
        return response


class TokenInAddressMiddleware:
    """Refuses an API token in the address: every proxy on the way has written it down by now."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        query = request.META.get("QUERY_STRING", "")
        if holds_token(request.path) or holds_token(query) or holds_token(unquote_plus(query)):
            message = (
                "The address holds an API token, which logs on the way keep: revoke that token, make another, and send "
                "it as 'Authorization: Bearer <token>'."
            )
            return json_error(AssayError("token_in_address", message), request)
        return self.get_response(request)


class MetricsMiddleware:
    """Counts and times requests by the name of their route, never by path: the set of labels stays closed."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        response = self.get_response(request)
        match = request.resolver_match
        route = (match.view_name or match.route or "unnamed") if match else "unknown"
        method = request.method if request.method in metrics.METHODS else "other"
        metrics.http_requests.labels(route, method, str(response.status_code)).inc()
        seconds = time.perf_counter() - started
        metrics.http_seconds.labels(route).observe(seconds)
        if match:  # the route, not the path: what people search for stays out of the log; static files too
            logger.info("%s %s: %s in %.3f s", request.method, route, response.status_code, seconds)
        return response
