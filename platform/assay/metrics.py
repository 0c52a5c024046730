"""Prometheus metrics of the web process, and the registry that other apps add their collectors to."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

registry = CollectorRegistry(auto_describe=True)
http_requests = Counter(
    "assay_http_requests_total", "Answered HTTP requests.", ["route", "method", "status"], registry=registry
)
http_seconds = Histogram(
    "assay_http_request_seconds",
    "Seconds from the first byte in to the answer.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=registry,
)


def register_collector(collector: Collector) -> None:
    """Add a collector; call it from ``AppConfig.ready``. Its ``collect`` runs at each scrape, so it must be quick."""
    registry.register(collector)


def metrics_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
