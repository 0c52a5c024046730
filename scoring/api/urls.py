"""The addresses that clients of other servers know stand at the root; the platform's own resources under /api/v1/."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from scoring.api.agreement import (
    PoolAdjudicationView,
    PoolAgreementView,
    PoolConflictsView,
    PoolModelJudgesView,
)
from scoring.api.api_tokens import TokenViewSet
from scoring.api.audit_events import AuditEventViewSet
from scoring.api.batches import BatchCancelView, BatchListView, BatchView
from scoring.api.cohere import CohereEmbedView, CohereRerankView
from scoring.api.comparisons import ComparisonViewSet
from scoring.api.document_sets import DocumentSetViewSet
from scoring.api.embeddings import EmbeddingsView
from scoring.api.encodings import EncodingViewSet
from scoring.api.evaluations import EvaluationViewSet
from scoring.api.explanation import ExplainView, ItemExplanationView, JobExplanationView
from scoring.api.exports import ExportViewSet
from scoring.api.files import FileContentView, FileListView, FileView
from scoring.api.generative import GenerativeView
from scoring.api.jobs import JobViewSet
from scoring.api.judgements import JudgementSetViewSet
from scoring.api.model_aliases import ModelAliasViewSet
from scoring.api.model_cards import CardListView, CardView
from scoring.api.models import ModelViewSet
from scoring.api.pooling import ClassifyView, PoolingView
from scoring.api.pools import PoolViewSet
from scoring.api.query_sets import QuerySetViewSet
from scoring.api.rerank import RerankView
from scoring.api.runs import RunSetViewSet
from scoring.api.score import ScoreView
from scoring.api.score_requests import ScoreRequestViewSet
from scoring.api.set_ranking import SetRankView
from scoring.api.sglang import V1ScoreView
from scoring.api.teams import TeamViewSet
from scoring.api.tei import EmbedAllView, EmbedSparseView, EmbedView, PredictView, RootRerankView
from scoring.api.thresholds import ThresholdAdviceViewSet, ThresholdsView
from scoring.api.tokens import DetokenizeView, TokenizeView
from scoring.api.usage import UsageView
from scoring.api.webhooks import WebhookDeliveryViewSet, WebhookViewSet
from scoring.api.workers import WorkerViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("models", ModelViewSet, "api-model")
router.register("model-aliases", ModelAliasViewSet, "api-model-alias")
router.register("threshold-advice", ThresholdAdviceViewSet, "api-threshold-advice")
router.register("document-sets", DocumentSetViewSet, "api-document-set")
router.register("query-sets", QuerySetViewSet, "api-query-set")
router.register("judgements", JudgementSetViewSet, "api-judgement-set")
router.register("runs", RunSetViewSet, "api-run-set")
router.register("jobs", JobViewSet, "api-job")
router.register("comparisons", ComparisonViewSet, "api-comparison")
router.register("pools", PoolViewSet, "api-pool")
router.register("evaluations", EvaluationViewSet, "api-evaluation")
router.register("score-requests", ScoreRequestViewSet, "api-score-request")
router.register("workers", WorkerViewSet, "api-worker")
router.register("tokens", TokenViewSet, "api-token")
router.register("teams", TeamViewSet, "api-team")
router.register("audit-events", AuditEventViewSet, "api-audit-event")
router.register("encodings", EncodingViewSet, "api-encoding")
router.register("exports", ExportViewSet, "api-export")
router.register("webhooks", WebhookViewSet, "api-webhook")
router.register("webhook-deliveries", WebhookDeliveryViewSet, "api-webhook-delivery")

urlpatterns = [
    path("rerank", RootRerankView.as_view(), name="rerank"),
    path("v1/rerank", RerankView.as_view(), name="v1-rerank"),
    path("v2/rerank", CohereRerankView.as_view(), name="v2-rerank"),
    path("score", ScoreView.as_view(), name="score"),
    path("v1/score", V1ScoreView.as_view(), name="v1-score"),
    path("v1/explain", ExplainView.as_view(), name="v1-explain"),
    path("generative_scoring", GenerativeView.as_view(), name="generative-scoring"),
    path("v1/embeddings", EmbeddingsView.as_view(), name="v1-embeddings"),
    path("v2/embed", CohereEmbedView.as_view(), name="v2-embed"),
    path("pooling", PoolingView.as_view(), name="pooling"),
    path("classify", ClassifyView.as_view(), name="classify"),
    path("embed", EmbedView.as_view(), name="embed"),
    path("embed_sparse", EmbedSparseView.as_view(), name="embed-sparse"),
    path("embed_all", EmbedAllView.as_view(), name="embed-all"),
    path("predict", PredictView.as_view(), name="predict"),
    path("tokenize", TokenizeView.as_view(), name="tokenize"),
    path("detokenize", DetokenizeView.as_view(), name="detokenize"),
    path("v1/models", CardListView.as_view(), name="v1-models"),
    path("v1/models/<path:name>", CardView.as_view(), name="v1-model"),
    path("v1/files", FileListView.as_view(), name="v1-files"),
    path("v1/files/<str:file_id>", FileView.as_view(), name="v1-file"),
    path("v1/files/<str:file_id>/content", FileContentView.as_view(), name="v1-file-content"),
    path("v1/batches", BatchListView.as_view(), name="v1-batches"),
    path("v1/batches/<str:batch_id>", BatchView.as_view(), name="v1-batch"),
    path("v1/batches/<str:batch_id>/cancel", BatchCancelView.as_view(), name="v1-batch-cancel"),
    path("api/v1/document-sets/<uuid:pk>/rank", SetRankView.as_view(), name="api-document-set-rank"),
    path("api/v1/jobs/<uuid:pk>/explanation", JobExplanationView.as_view(), name="api-job-explanation"),
    path("api/v1/jobs/<uuid:pk>/thresholds", ThresholdsView.as_view(), name="api-job-thresholds"),
    path(
        "api/v1/score-requests/<uuid:pk>/explanation",
        ItemExplanationView.as_view(),
        name="api-score-request-explanation",
    ),
    path("api/v1/pools/<uuid:pk>/agreement", PoolAgreementView.as_view(), name="api-pool-agreement"),
    path("api/v1/pools/<uuid:pk>/conflicts", PoolConflictsView.as_view(), name="api-pool-conflicts"),
    path("api/v1/pools/<uuid:pk>/adjudications", PoolAdjudicationView.as_view(), name="api-pool-adjudications"),
    path("api/v1/pools/<uuid:pk>/model-judges", PoolModelJudgesView.as_view(), name="api-pool-model-judges"),
    path("api/v1/usage", UsageView.as_view(), name="api-usage"),
    path("api/v1/", include(router.urls)),
]
