"""Every refusal has one shape, whoever refuses: the parser, a serializer, a service, the router, a crash."""

from __future__ import annotations

import json
import logging
from typing import Any, ClassVar

import pytest
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.views.generic.base import View
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient
from rest_framework.views import APIView

from assay.api.serializers import StrictBooleanField, StrictIntegerField, StrictSerializer, TextField
from assay.errors import AssayError


class ItemSerializer(StrictSerializer):
    text = TextField()


class QuerySerializer(StrictSerializer):
    aliases: ClassVar = {"top_k": "top_n"}
    query = TextField()
    documents = ItemSerializer(many=True, required=False)
    words = serializers.ListField(child=TextField(), required=False)
    top_n = StrictIntegerField(min_value=1, required=False, allow_null=True)
    echo = StrictBooleanField(required=False)


class EchoView(APIView):
    permission_classes = (AllowAny,)

    def post(self, request: Request) -> Response:
        serializer = QuerySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(serializer.validated_data)


class FailingView(APIView):
    permission_classes = (AllowAny,)

    def get(self, request: Request, how: str) -> Response:
        raise {
            "crash": RuntimeError("the secret cause"),
            "missing": Http404("row"),
            "busy": AssayError("busy", "Too much at once.", status=429, retry_after=1.2, extra={"queue": "sync"}),
        }[how]


class ClosedView(APIView):
    required_scope = "jobs"

    def get(self, request: Request) -> Response:
        return Response({})


class ForgottenView(APIView):
    def get(self, request: Request) -> Response:
        return Response({})


class CrashingPage(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        raise RuntimeError("the secret cause")


urlpatterns = [
    path("echo", EchoView.as_view()),
    path("fail/<str:how>", FailingView.as_view()),
    path("closed", ClosedView.as_view()),
    path("forgotten", ForgottenView.as_view()),
    path("page", CrashingPage.as_view()),
    path("", include("assay.urls")),
]
handler400 = "assay.web.errors.bad_request"
handler403 = "assay.web.errors.forbidden"
handler404 = "assay.web.errors.not_found"
handler500 = "assay.web.errors.server_error"

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture
def anyone() -> APIClient:
    return APIClient(raise_request_exception=False)


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"].startswith("application/json")
    body = json.loads(response.content)
    assert list(body) == ["error"]
    error = body["error"]
    assert {"message", "type", "param", "code", "request_id"} <= set(error)
    assert error["request_id"] == response["X-Request-Id"]
    return dict(error)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "query", "required"),
        ({"query": 7}, "query", "invalid"),
        ({"query": "q", "documents": [{"text": "a"}, {"text": None}]}, "documents[1].text", "null"),
        ({"query": "q", "words": ["a", "b", ["c"]]}, "words[2]", "invalid"),
        ({"query": "q", "top_n": 0}, "top_n", "min_value"),
        ({"query": "q", "top_n": "3"}, "top_n", "invalid"),
        ({"query": "q", "top_n": 2.5}, "top_n", "invalid"),
        ({"query": "q", "top_n": True}, "top_n", "invalid"),
        ({"query": "q", "echo": "yes"}, "echo", "invalid"),
        ({"query": "q", "top_n": 1, "top_k": 1}, "top_k", "given_twice"),
        ({"query": "q", "documents": [{"text": "a", "txt": "b"}]}, "documents[0].txt", "unknown_field"),
        (["not", "an", "object"], None, "invalid"),
    ],
)
def test_a_validation_error_names_the_path(anyone: APIClient, body: Any, param: str | None, code: str) -> None:
    error = error_of(anyone.post("/echo", body), 422)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")


def test_an_unknown_field_lists_the_valid_ones(anyone: APIClient) -> None:
    error = error_of(anyone.post("/echo", {"query": "q", "documnets": []}), 422)
    assert error["param"] == "documnets"
    assert "documents, echo, query, top_k, top_n, words" in error["message"]


def test_aliases_and_texts_come_through_as_sent(anyone: APIClient) -> None:
    response = anyone.post("/echo", {"query": "  kept \n", "top_k": 3, "words": [""]})
    assert response.json() == {"query": "  kept \n", "top_n": 3, "words": [""]}


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        ("{", "application/json", 400, "malformed_body"),
        ('{"query": NaN}', "application/json", 400, "malformed_body"),
        ('{"top_k": %s}' % ("1" * 5000), "application/json", 400, "malformed_body"),
        ('{"query": "\\u0000"}', "application/json", 422, "nul_character"),
        ('{"query": "\\ud83d"}', "application/json", 422, "lone_surrogate"),
        ("query=q", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    ],
)
def test_bodies_that_cannot_be_used(anyone: APIClient, content: str, kind: str, status: int, code: str) -> None:
    assert error_of(anyone.post("/echo", content, content_type=kind), status)["code"] == code


def test_a_large_body_is_413(anyone: APIClient, settings: Any) -> None:
    settings.MAX_BODY_BYTES = 1024
    assert error_of(anyone.post("/echo", {"query": "x" * 2000}), 413)["code"] == "body_too_large"


def test_method_and_address(anyone: APIClient) -> None:
    assert error_of(anyone.get("/echo"), 405)["code"] == "method_not_allowed"
    assert error_of(anyone.get("/api/v1/nothing-here"), 404)["code"] == "not_found"
    assert error_of(anyone.get("/fail/missing"), 404)["code"] == "not_found"


def test_who_is_not_known_gets_401_and_who_may_not_gets_403(anyone: APIClient, api_with: Any) -> None:
    unknown = anyone.get("/closed")
    assert error_of(unknown, 401)["type"] == "authentication_error"
    assert unknown["WWW-Authenticate"].startswith("Bearer")
    assert (
        error_of(anyone.get("/closed", headers={"Authorization": "Bearer assay_wrong"}), 401)["type"]
        == "authentication_error"
    )
    assert (
        error_of(anyone.get("/closed", headers={"Authorization": "Basic eDp5"}), 401)["type"] == "authentication_error"
    )
    assert error_of(api_with("score").get("/closed"), 403)["type"] == "permission_error"
    assert api_with("jobs").get("/closed").status_code == 200


def test_a_session_needs_the_csrf_token(analyst: Any) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(analyst)
    assert client.get("/closed").status_code == 200
    assert error_of(client.post("/closed", {}), 403)["type"] == "permission_error"


def test_a_view_without_a_scope_is_closed(api: APIClient) -> None:
    api.raise_request_exception = False
    assert error_of(api.get("/forgotten"), 500)["code"] == "internal_error"


def test_a_crash_says_nothing_of_its_cause_but_the_log_does(
    anyone: APIClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = anyone.get("/fail/crash")
    error = error_of(response, 500)
    assert "secret cause" not in response.content.decode()
    assert error["request_id"]
    assert "the secret cause" in caplog.text


def test_a_service_s_error_keeps_its_status_extras_and_retry_time(anyone: APIClient) -> None:
    response = anyone.get("/fail/busy")
    error = error_of(response, 429)
    assert error["queue"] == "sync" and error["code"] == "busy" and error["type"] == "rate_limit_error"
    assert response["Retry-After"] == "2"


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("ä", False)]
)
def test_request_ids(anyone: APIClient, given: str, kept: bool) -> None:
    response = anyone.get("/livez", headers={"X-Request-Id": given})
    assert (response["X-Request-Id"] == given) is kept
    assert response["X-Request-Id"]


def test_a_browser_gets_a_page_and_a_program_json() -> None:
    client = Client(raise_request_exception=False)
    page = client.get("/page", headers={"Accept": "text/html"})
    assert page.status_code == 500 and not page["Content-Type"].startswith("application/json")
    assert b"secret cause" not in page.content
    assert error_of(client.get("/page", headers={"Accept": "application/json"}), 500)["code"] == "internal_error"
    assert not client.get("/nothing", headers={"Accept": "text/html"})["Content-Type"].startswith("application/json")


def test_a_body_beyond_every_limit_is_refused_by_its_announced_length(client: Client, settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1 << 20
    answer = client.post("/accounts/login/", b"", content_type="text/plain", headers={"Content-Length": str(2 << 20)})
    assert answer.status_code == 413 and "the limit of this server is 1,048,576" in answer.json()["error"]["message"]
