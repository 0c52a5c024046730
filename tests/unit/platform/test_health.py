"""Health and metrics: what they say, and that a dead part is named."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from assay import metrics


def test_live_without_any_server(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "ok"}


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/readyz", "/health"])
def test_ready_when_both_servers_answer(client: Client, address: str) -> None:
    response = client.get(address)
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "parts": {"database": "ok", "redis": "ok"}}


@pytest.mark.django_db
def test_a_dead_redis_is_named(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"] == {"database": "ok", "redis": "Redis does not answer (ConnectionError)."}


def samples(client: Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = client.get("/metrics").content.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_and_status_never_by_path(db: None, client: Client) -> None:
    key = ("assay_http_requests_total", (("method", "GET"), ("route", "unknown"), ("status", "404")))
    before = samples(client).get(key, 0)
    client.get("/no-such-thing-1")
    client.get("/no-such-thing-2")
    after = samples(client)
    assert after[key] == before + 2
    assert not any("no-such-thing" in str(labels) for _, labels in after)
    client.get("/accounts/login/", headers={"Accept": "application/json"})
    login = (("method", "GET"), ("route", "login"), ("status", "200"))
    assert samples(client)[("assay_http_requests_total", login)] >= 1


def test_probes_need_neither_a_known_host_name_nor_tls(client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["assay.example"]
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/livez", headers={"Host": "10.0.0.7:8000"}).status_code == 200
    assert client.get("/api/schema/", headers={"Host": "10.0.0.7:8000"}).status_code in {301, 400}


def test_probes_are_only_read(client: Client) -> None:
    assert client.post("/readyz").status_code == 405


def test_other_apps_add_collectors(db: None, client: Client) -> None:
    class Collector:
        def collect(self) -> Any:
            yield GaugeMetricFamily("assay_test_gauge", "A gauge.", value=4)

    collector = Collector()
    metrics.register_collector(collector)
    try:
        assert samples(client)[("assay_test_gauge", ())] == 4
    finally:
        metrics.collectors.remove(collector)
