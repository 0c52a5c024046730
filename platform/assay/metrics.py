"""Prometheus metrics of the web processes, and the registry that other apps add their collectors to.

Several processes may share one address, and a scrape reaches any of them. Where PROMETHEUS_MULTIPROC_DIR is set, as the
server's start does, each keeps its figures in files of that folder, and whoever is asked answers for all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from assay.settings import env

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
http_refused = Counter(
    "assay_http_refused_total", "Requests turned away unread by the server, by reason.", ["reason"], registry=registry
)
http_disconnects = Counter(
    "assay_http_disconnects_total", "Clients that hung up before their answer, by lane.", ["lane"], registry=registry
)
lane_requests = Gauge(
    "assay_http_in_flight",
    "Requests in hand, by lane; event streams are a lane of their own.",
    ["lane"],
    registry=registry,
    multiprocess_mode="livesum",
)
draining = Gauge(
    "assay_http_draining",
    "Web processes that were asked to stop and end what they have in hand.",
    registry=registry,
    multiprocess_mode="livesum",
)
collectors: list[Collector] = []


def register_collector(collector: Collector) -> None:
    """Add a collector; call it from ``AppConfig.ready``. Its ``collect`` runs at each scrape, so it must be quick."""
    collectors.append(collector)


def metrics_view(request: HttpRequest) -> HttpResponse:
    whole = CollectorRegistry()
    if folder := env.metrics_folder():
        _forget_ended(folder)
        MultiProcessCollector(whole, str(folder))
    else:
        whole.register(registry)
    for collector in collectors:
        whole.register(collector)
    return HttpResponse(generate_latest(whole), content_type=CONTENT_TYPE_LATEST)


def _forget_ended(folder: Path) -> None:
    """What was in hand in a process that is gone is in nobody's hand. Counters of the dead stay: sums never fall."""
    for file in folder.glob("gauge_live*.db"):
        pid = int(re.search(r"_(\d+)\.db$", file.name)[1])  # type: ignore[index]  # the library's own names
        if pid != os.getpid() and not psutil.pid_exists(pid):
            mark_process_dead(pid, str(folder))
