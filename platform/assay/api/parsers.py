"""JSON as the standards mean it: no NaN, no NUL, no lone surrogate, no name twice, no bottomless nesting or body."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from assay.errors import AssayError

MAX_DEPTH = 24
LONG_NUMBER = re.compile(rb"\d{19}")  # may be a whole number that 64 bits do not hold
NAME_END = re.compile(rb'"[ \t\r\n]*:')  # of every member's name; also in texts


class StrictJSONParser(BaseParser):
    """400 for what is not JSON, 413 for a body over MAX_BODY_BYTES, 422 for text that no database row could hold."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return parse_json(read_limited(stream, settings.MAX_BODY_BYTES))


def read_limited(stream: IO[bytes], limit: int) -> bytes:
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise AssayError(
            "body_too_large",
            f"The body is larger than {limit} bytes; send the documents in several requests.",
            status=413,
        )
    return body


def parse_json(body: bytes) -> Any:
    """Nearly every body is plain and read fast; the others slowly, to be refused in words or read to the last digit."""
    if not LONG_NUMBER.search(body) and b"\\u0000" not in body:
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            return _parse_in_words(body)
        # Of a name that is given twice only one is left: the body then holds more ends of names than members.
        if _members(data) == sum(1 for _ in NAME_END.finditer(body)):
            return data
    return _parse_in_words(body)


def _members(data: Any) -> int | None:
    """How many members all objects of ``data`` have; None if it nests too deeply."""
    level, count = [data] if isinstance(data, list | dict) else [], 0
    for _ in range(MAX_DEPTH):
        count += sum(len(value) for value in level if isinstance(value, dict))
        inner = (child for value in level for child in (value.values() if isinstance(value, dict) else value))
        level = [child for child in inner if isinstance(child, list | dict)]
        if not level:
            return count
    return None


def _parse_in_words(body: bytes) -> Any:
    try:
        data = json.loads(body.decode("utf-8"), **STRICT)
    except UnicodeDecodeError as error:
        raise ParseError(f"The body is not UTF-8: byte {error.start} cannot be read.") from error
    except json.JSONDecodeError as error:
        raise ParseError(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
    except ValueError as error:
        raise ParseError("A number in the body has thousands of digits; send at most 4,300 of them.") from error
    except RecursionError as error:
        raise _too_deep() from error
    for path, text in _texts(data):
        _check_text(path, text)
    return data


def once_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object. Raises AssayError 400 ``given_twice`` for a name that it has twice."""
    given = dict(members)
    if len(given) < len(members):
        name = next(name for name, count in Counter(name for name, _ in members).items() if count > 1)
        shown = name[:80].encode("utf-8", "replace").decode()
        message = f"'{shown}' is given twice in one object; which of the two is meant, nobody can tell. Give it once."
        raise AssayError("given_twice", message, param=shown)
    return given


def _refuse_constant(name: str) -> float:
    raise ParseError(f"The body is not JSON: {name} is not a JSON number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ParseError(f"The number {digits[:40]} is larger than a 64-bit float can hold.")
    return number


STRICT: Final[dict[str, Any]] = {
    "parse_constant": _refuse_constant,
    "parse_float": _finite,
    "object_pairs_hook": once_each,
}


def _too_deep() -> AssayError:
    return AssayError("nested_too_deeply", f"The body nests lists and objects more than {MAX_DEPTH} deep.", status=422)


def _texts(data: Any) -> Iterator[tuple[str, str]]:
    """Every string of ``data`` with its path, names of members included; a stack, so depth costs no recursion."""
    stack: list[tuple[str, Any, int]] = [("", data, 0)]
    while stack:
        path, value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, list):
            stack.extend((f"{path}[{index}]", item, depth + 1) for index, item in enumerate(value))
        elif isinstance(value, dict):
            for name, item in value.items():
                yield path, name
                stack.append((f"{path}.{name}" if path else name, item, depth + 1))


def _check_text(path: str, text: str) -> None:
    position = text.find("\0")
    if position >= 0:
        raise AssayError(
            "nul_character", f"{path or 'The body'} holds a NUL character at position {position}; remove it.",
            status=422, param=path or None,
        )  # fmt: skip
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise AssayError(
            "lone_surrogate",
            f"{path or 'The body'} holds half of a surrogate pair at position {error.start}; send whole characters.",
            status=422, param=path.encode("utf-8", "replace").decode() or None,
        ) from error  # fmt: skip
