from __future__ import annotations

import pytest
from django.test import Client

from scoring import sync_metrics
from scoring.sync_metrics import MOST_MODELS, sync_observe


def test_series_have_an_end(db: None, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_metrics, "_names", set())  # of other tests in this process
    sync_metrics.sync_seconds.clear()
    timings = {"queue": 1.0, "tokenise": 2.0, "forward": 30.0, "maxsim": 0.0, "total": 33.0}
    sync_observe(model_name="of-metrics", timings_ms=timings, parts=2, retries=1, cold=4.0)
    for number in range(MOST_MODELS + 5):
        sync_observe(model_name=f"of-metrics-{number}", timings_ms=timings, parts=1, retries=0, cold=0.0)
    scraped = client.get("/metrics").content.decode()
    assert 'assay_sync_phase_seconds_count{model="of-metrics",phase="forward"} 1.0' in scraped
    assert 'assay_sync_phase_seconds_bucket{le="0.05",model="of-metrics",phase="total"} 1.0' in scraped
    assert f'{{model="{sync_metrics.OTHER}",phase="total"}}' in scraped
    models = {line.split('"')[1] for line in scraped.splitlines() if line.startswith("assay_sync_phase_seconds_count")}
    assert len(models) == MOST_MODELS + 1
    assert "assay_sync_cold_start_seconds_sum" in scraped and "assay_sync_retries_total" in scraped
