"""The addresses that clients of other servers know stand at the root; the platform's own resources under /api/v1/."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from scoring.api.document_sets import DocumentSetViewSet
from scoring.api.generative import GenerativeView
from scoring.api.jobs import JobViewSet
from scoring.api.judgements import JudgementSetViewSet
from scoring.api.models import CardListView, CardView, ModelViewSet
from scoring.api.query_sets import QuerySetViewSet
from scoring.api.rerank import RerankView
from scoring.api.runs import RunSetViewSet
from scoring.api.score import ScoreView
from scoring.api.score_requests import ScoreRequestViewSet
from scoring.api.webhooks import WebhookDeliveryViewSet, WebhookViewSet
from scoring.api.workers import WorkerViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("models", ModelViewSet, "api-model")
router.register("document-sets", DocumentSetViewSet, "api-document-set")
router.register("query-sets", QuerySetViewSet, "api-query-set")
router.register("judgements", JudgementSetViewSet, "api-judgement-set")
router.register("runs", RunSetViewSet, "api-run-set")
router.register("jobs", JobViewSet, "api-job")
router.register("score-requests", ScoreRequestViewSet, "api-score-request")
router.register("workers", WorkerViewSet, "api-worker")
router.register("webhooks", WebhookViewSet, "api-webhook")
router.register("webhook-deliveries", WebhookDeliveryViewSet, "api-webhook-delivery")

urlpatterns = [
    path("rerank", RerankView.as_view(), name="rerank"),
    path("v1/rerank", RerankView.as_view(), name="v1-rerank"),
    path("score", ScoreView.as_view(), name="score"),
    path("v1/score", ScoreView.as_view(), name="v1-score"),
    path("generative_scoring", GenerativeView.as_view(), name="generative-scoring"),
    path("v1/models", CardListView.as_view(), name="v1-models"),
    path("v1/models/<path:name>", CardView.as_view(), name="v1-model"),
    path("api/v1/", include(router.urls)),
]
