"""The Python client. It needs httpx alone: neither Django nor torch nor the platform's settings.

from assay.client import Client

with Client() as assay:
    for result in assay.rerank("how do I stop a nosebleed?", documents)["results"]:
        print(result["relevance_score"], documents[result["index"]])
"""

from assay.client.clients import AsyncClient, Client
from assay.client.errors import (
    ApiError,
    AuthenticationError,
    ClientError,
    ConfigurationError,
    ConflictError,
    DeadlineError,
    InvalidError,
    MalformedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    TooLargeError,
    UnavailableError,
    UnreachableError,
    WaitTimeoutError,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ConfigurationError",
    "ConflictError",
    "DeadlineError",
    "InvalidError",
    "MalformedError",
    "NotFoundError",
    "PermissionDeniedError",
    "RateLimitError",
    "TooLargeError",
    "UnavailableError",
    "UnreachableError",
    "WaitTimeoutError",
]
