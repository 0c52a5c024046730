"""The one error that services raise on purpose. It knows no framework: each border turns it into its own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.token_form import tokens_hidden


class AssayError(Exception):
    """A refusal with a stable ``code`` and a sentence for the person who asked.

    ``status`` is the HTTP status it maps to, ``param`` the path of the field at fault (``documents[3].text``),
    ``retry_after`` the seconds after which a new try makes sense, ``headers`` further ones of the answer, ``extra``
    further members of the error object. Messages quote what was sent, wherever it was put: API tokens in them are cut
    to their prefixes.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.code = code
        self.message = tokens_hidden(message)
        self.status = status
        self.param = param and tokens_hidden(param)
        super().__init__(self.message)
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
