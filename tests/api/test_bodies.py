"""Packed bodies and packed answers."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import Any

import pytest
import zstandard
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from scoring.models import ScoringModel

PACKERS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}


def post(api: APIClient, body: bytes, encoding: str, **more: Any) -> Any:
    """To an operation that reads its body and then finds no worker."""
    address = more.pop("address", "/rerank")
    return api.post(address, body, content_type="application/json", headers={"Content-Encoding": encoding, **more})


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_packed_body_is_read_as_if_it_were_none(api: APIClient, model: ScoringModel, encoding: str) -> None:
    body = json.dumps({"model": "late", "query": "q", "documents": ["text"] * 10_000}).encode()
    assert code(post(api, PACKERS[encoding](body), encoding)) == (413, "too_many_documents")  # all of them were read
    twice = PACKERS[encoding](body[:100]) + PACKERS[encoding](body[100:])
    assert code(post(api, twice, encoding.upper())) == (413, "too_many_documents")


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_bomb_is_refused_in_little_memory(api: APIClient, settings: Settings, encoding: str) -> None:
    settings.MAX_BODY_BYTES = 1 << 20
    bomb = PACKERS[encoding](b'"' + b"a" * (256 << 20))
    tracemalloc.start()
    try:
        assert code(post(api, bomb, encoding)) == (413, "body_too_large")
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", PACKERS)
def test_what_is_not_packed_so_is_named(api: APIClient, encoding: str) -> None:
    whole = PACKERS[encoding](b'{"query": "' + bytes(range(32, 127)) * 99 + b'"}')
    for body in (b"{}", whole[: len(whole) // 2]):
        refused = post(api, body, encoding)
        assert code(refused) == (400, "malformed_body")
        assert f"packed by {encoding}, and it cannot be" in refused.json()["error"]["message"]


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_packed_upload_that_breaks_off_leaves_nothing(api: APIClient, encoding: str) -> None:
    rows = "id,text\n" + "".join(f"d{i},{'river stone lamp '[i % 9 :]}{i * i}\n" for i in range(20_000))
    packed = PACKERS[encoding](rows.encode())
    path, header = "/api/v1/document-sets?name=Rows", {"Content-Encoding": encoding}
    for body in (packed[: len(packed) // 2], packed[:-1]):
        refused = api.post(path, body, content_type="text/csv", headers=header)
        assert code(refused) == (400, "malformed_body"), refused.content
    assert api.get("/api/v1/document-sets").json()["results"] == []
    twice = packed + PACKERS[encoding](b"last,one\n")  # frames one after the other are one body
    stored = api.post(path, twice, content_type="text/csv", headers=header)
    assert stored.status_code == 201 and stored.json()["counts"]["kept"] == 20_001


def test_other_encodings_are_refused_by_name(api: APIClient) -> None:
    for encoding in ("deflate", "br", "gzip, gzip"):
        response = post(api, b"{}", encoding)
        assert code(response) == (415, "unsupported_encoding")
        assert encoding in response.json()["error"]["message"]
    form = api.post("/accounts/login/", b"x", content_type="application/x-www-form-urlencoded", headers={
        "Content-Encoding": "gzip", "Accept": "application/json"})  # fmt: skip
    assert code(form) == (415, "unsupported_encoding")


def test_a_bomb_for_a_page_is_the_clients_fault_too(db: None, settings: Settings) -> None:
    settings.UPLOAD_MAX_BYTES = 1 << 20
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.csv"\r\n\r\n'
    client = Client(enforce_csrf_checks=True)
    client.get("/accounts/login/")
    response = client.post(
        "/accounts/login/", gzip.compress(head + b"a" * (8 << 20)), content_type="multipart/form-data; boundary=x",
        headers={"Content-Encoding": "gzip"},
    )  # fmt: skip
    assert response.status_code == 400


def test_answers_are_packed_where_it_is_worth_it(api: APIClient, db: None) -> None:
    plain = api.get("/api/schema/?format=json")
    packed = api.get("/api/schema/?format=json", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    small = api.get("/livez", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers
