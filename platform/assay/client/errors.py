"""What a call may raise. Nothing here holds the token, nor the request that carried it."""

from __future__ import annotations

from typing import Any, ClassVar


class ClientError(Exception):
    """Every error of this package; its text is a sentence for the person who called."""


class ConfigurationError(ClientError):
    """There is no token, or the file that should hold it cannot be used."""


class UnreachableError(ClientError):
    """No answer came: nobody listens there, the connection broke, or the time was up."""


class WaitTimeoutError(ClientError):
    """What was waited for has not happened yet. It goes on by itself on the server."""


class ApiError(ClientError):
    """The server refused. ``status`` is HTTP's, ``code`` stable and for programs, ``param`` the path of the field at
    fault, ``retry_after`` the seconds after which a new try makes sense, ``detail`` the error object as it came."""

    status_of: ClassVar[int | None] = None

    def __init__(self, status: int, detail: dict[str, Any], *, retry_after: float | None = None) -> None:
        self.status = status
        self.detail = detail
        self.message: str = detail.get("message") or f"The server answered {status}."
        self.code: str = detail.get("code") or f"http_{status}"
        self.param: str | None = detail.get("param")
        self.request_id: str | None = detail.get("request_id")
        self.retry_after = retry_after
        super().__init__(self.message)


class MalformedError(ApiError):
    status_of = 400


class AuthenticationError(ApiError):
    status_of = 401


class PermissionDeniedError(ApiError):
    status_of = 403


class NotFoundError(ApiError):
    status_of = 404


class ConflictError(ApiError):
    status_of = 409


class TooLargeError(ApiError):
    status_of = 413


class InvalidError(ApiError):
    status_of = 422


class RateLimitError(ApiError):
    status_of = 429


class UnavailableError(ApiError):
    status_of = 503


class DeadlineError(ApiError):
    status_of = 504


BY_STATUS = {kind.status_of: kind for kind in ApiError.__subclasses__()}


def api_error(status: int, detail: dict[str, Any], *, retry_after: float | None = None) -> ApiError:
    return BY_STATUS.get(status, ApiError)(status, detail, retry_after=retry_after)
