"""The JSON parser: what it refuses, with which status, and where it says the fault is."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from assay.api.parsers import MAX_DEPTH, parse_json, read_limited
from assay.errors import AssayError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b"[1,]",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'"\xff"',
        b'"a\x00b"',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        parse_json(body)


@pytest.mark.parametrize(
    ("body", "param", "code", "position"),
    [
        (rb'{"query": "q", "documents": ["fine", "a\u0000b"]}', "documents[1]", "nul_character", 1),
        (rb'{"documents": [{"text": "ab\ud83d"}]}', "documents[0].text", "lone_surrogate", 2),
        (rb'{"query": "\udc00"}', "query", "lone_surrogate", 0),
        (rb'{"bad\u0000name": 1}', None, "nul_character", 3),
    ],
)
def test_text_that_no_row_can_hold(body: bytes, param: str | None, code: str, position: int) -> None:
    with pytest.raises(AssayError, match=f"position {position}") as raised:
        parse_json(body)
    assert (raised.value.status, raised.value.code, raised.value.param) == (422, code, param)


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse_json(rb'{"query": "\ud83d\ude00"}') == {"query": "\U0001f600"}


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 5_000, 200_000])
def test_nesting_is_bounded(depth: int) -> None:
    with pytest.raises(AssayError) as raised:
        parse_json(b"[" * depth + b"]" * depth)
    assert (raised.value.status, raised.value.code) == (422, "nested_too_deeply")


def test_a_body_over_the_limit_is_refused_without_reading_it_all() -> None:
    stream = io.BytesIO(b"x" * 1000)
    with pytest.raises(AssayError) as raised:
        read_limited(stream, 100)
    assert raised.value.status == 413
    assert stream.tell() <= 101


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_everything_else_comes_through_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"query": "a", "query": "b"}', "query"),
        (b'{"documents": [{"text": "a", "id": 1 , "text"\t: "b"}]}', "text"),
        (b'{"a\\\\": {"b": 1, "b": 1}}', "b"),
        (rb'{"a\u0062": 1, "ab": 2}', "ab"),
    ],
)
def test_a_name_twice_in_one_object_is_refused_by_name(body: bytes, name: str) -> None:
    with pytest.raises(AssayError, match=f"'{name}' is given twice") as raised:
        parse_json(body)
    assert (raised.value.status, raised.value.code, raised.value.param) == (400, "given_twice", name)


def test_what_resembles_a_name_in_a_text_is_no_member() -> None:
    body = {"query": '{"query": 1, "query" : 2}', "documents": [{"query": '":'}, {"query": "\\"}]}
    assert parse_json(json.dumps(body).encode()) == body
