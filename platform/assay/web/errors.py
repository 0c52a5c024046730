"""What a request gets that no view answers: JSON for programs, a page for browsers."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string

from assay.api.errors import json_error
from assay.api.sentences import shortened
from assay.errors import AssayError

PROGRAM_PATHS = ("/api/", "/v1/", "/v2/")
MESSAGES = {
    400: ("bad_request", "The request cannot be understood."),
    403: ("permission_denied", "This is not allowed."),
    404: ("not_found", "There is nothing at this address."),
    500: ("internal_error", "Something failed on our side; the log has it under this request id."),
}


def wants_page(request: HttpRequest) -> bool:
    return (
        not request.path.startswith(PROGRAM_PATHS)
        and request.accepts("text/html")
        and "Authorization" not in request.headers
    )


def answer(request: HttpRequest, status: int, message: str | None = None) -> HttpResponse:
    code, usual = MESSAGES[status]
    error = AssayError(code, message or usual, status=status)
    if not wants_page(request):
        return json_error(error, request)
    context = {"status": status, "message": error.message, "request_id": getattr(request, "request_id", "")}
    try:
        # Without the request, so that no context processor can fail on top of the failure.
        return HttpResponse(render_to_string("error.html", context), status=status)
    except TemplateDoesNotExist:
        return HttpResponse(f"{error.message}\n", status=status, content_type="text/plain; charset=utf-8")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 403, str(exception) or None)


def not_here(noun: str, name: object) -> Http404:
    """To be raised by a page whose address names a row that is not there, or not for this person."""
    return Http404(f"There is no {noun} {shortened(str(name))!r} that you may see.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """In the words of whoever raised it; Django gives a resolver's miss no words but a dictionary."""
    said = exception.args[0] if exception.args else None
    usual = f"There is nothing at the address {shortened(request.path)!r}."
    return answer(request, 404, said if isinstance(said, str) and said else usual)


def server_error(request: HttpRequest) -> HttpResponse:
    return answer(request, 500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return answer(
        request, 403, "The form has expired or was sent from elsewhere; load the page again and send it once more."
    )
