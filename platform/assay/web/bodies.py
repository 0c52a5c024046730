"""Compressed bodies, in and out. What comes in is unpacked while it is read, so that a bomb costs no memory."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import IO, Any, Final, cast

import zstandard
from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from assay.api.errors import json_error
from assay.errors import AssayError

WINDOW_BYTES: Final = 8 << 20  # what a zstd frame may ask its reader to remember
ZSTD_BYTES: Final = 256  # unpacked at once: a bomb makes at most 8 MiB of them
WORTH_BYTES: Final = 1024  # an answer smaller than this is not compressed
FORM: Final = "application/x-www-form-urlencoded"

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class UnpackedTooLarge(AssayError, RequestDataTooBig):
    """Also what Django takes for the client's fault, where a form and not a view of the API reads the body."""


class NotAsPacked(AssayError, BadRequest):
    """Likewise."""


def _gzip(body: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile(fileobj=body, mode="rb"))


class ZstdReader:
    """Frames one after the other. zstandard's own reader takes one that breaks off for the end of all."""

    def __init__(self, body: IO[bytes]) -> None:
        self._body = body
        self._frame: Any = None  # while one is being read
        self._packed = b""
        self._ready = io.BytesIO()

    def read(self, count: int) -> bytes:
        while not (part := self._ready.read(count)):
            packed = self._packed or self._body.read(ZSTD_BYTES)
            if not packed:
                if self._frame is not None:
                    raise EOFError("its last frame breaks off")
                return b""
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
            self._ready, self._packed = io.BytesIO(self._frame.decompress(packed)), b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        return part


def _zstd(body: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", ZstdReader(body))


DECODERS: Final[dict[str, Callable[[IO[bytes]], IO[bytes]]]] = {"gzip": _gzip, "zstd": _zstd}


class UnpackedBody(io.RawIOBase):
    """At most ``limit`` bytes of what ``body`` holds packed."""

    def __init__(self, body: IO[bytes], encoding: str, limit: int) -> None:
        self._body, self._encoding, self._left = DECODERS[encoding](body), encoding, limit
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            part = self._body.read(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError) as error:
            message = (
                f"The Content-Encoding says that the body is packed by {self._encoding}, and it cannot be unpacked "
                f"({error}). Pack it so, or send it as it is without that header."
            )
            raise NotAsPacked("malformed_body", message, status=400) from error
        self._left -= len(part)
        if self._left < 0:
            message = f"Unpacked, the body has more than {self._limit:,} bytes, the limit of this server. Split it."
            raise UnpackedTooLarge("body_too_large", message, status=413)
        buffer[: len(part)] = part
        return len(part)


class ContentEncodingMiddleware:
    """Lets everything after it read a packed body as if it were none."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        encoding = request.META.pop("HTTP_CONTENT_ENCODING", "identity").strip().lower()
        if encoding not in ("identity", ""):
            if encoding not in DECODERS or request.content_type == FORM:
                return json_error(_refusal(encoding, form=encoding in DECODERS), request)
            unpacked = UnpackedBody(request._stream, encoding, settings.UPLOAD_MAX_BYTES)
            request._stream = io.BufferedReader(unpacked)
        return self.get_response(request)


class CompressionMiddleware(GZipMiddleware):
    """Packs answers for clients that take gzip, where that is worth it. Streams go out as they come."""

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if response.streaming or len(response.content) < WORTH_BYTES:
            return response
        return super().process_response(request, response)


def _refusal(encoding: str, *, form: bool) -> AssayError:
    what = "of a form" if form else f"'{encoding[:40]}'"
    return AssayError(
        "unsupported_encoding",
        f"The Content-Encoding {what} cannot be read; send JSON or a file as {' or '.join(DECODERS)}, or unpacked.",
        status=415,
        param="Content-Encoding",
    )
