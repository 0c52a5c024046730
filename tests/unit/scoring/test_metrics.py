from __future__ import annotations

import uuid

from django.test import Client
from redis import Redis

from scoring.dispatch import BATCH_QUEUE
from scoring.services.workers import worker_heartbeat, worker_move, worker_register
from scoring.states import WorkerState


def test_rows_become_series_and_a_lost_worker_s_series_go(
    db: None, client: Client, browser_client: Client, redis_client: Redis
) -> None:
    redis_client.delete(BATCH_QUEUE)  # wake-ups of other tests
    worker = worker_register(
        worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name="worker-7", host="here", pid=1, device="cpu"
    )
    worker_move(worker=worker, to=WorkerState.READY, reason="test")
    statistics = {
        "engine": {
            "tokens": 12,
            "waiting_tokens": 3,
            "label_fallbacks": 8,
            "document_cache": {"bytes": 5, "hits": 2},
            "disk_cache": {"bytes": 6, "hits": 1},
            "prefix_cache": {"bytes": 7, "entries": 3},
        },
        "sync": {"answered": 4},
        "chunks": {"done": 6},
        "chunk_work": {"seconds": 2.5, "pairs": 640},
        "remote": {"far": {"answered": 5, "seconds": 1.5, "shut": 1.0}},
        "documents_kept": {"late": {"bytes": 5, "device_bytes": 4, "budget_bytes": None}},
    }
    worker_heartbeat(worker=worker, progress=1, memory_bytes=9, in_hand=[], statistics=statistics)
    scraped = client.get("/metrics").content.decode()
    for line in (
        'assay_workers{state="ready"} 1.0',
        'assay_jobs{state="running"} 0.0',
        'assay_batch_lines{state="pending"} 0.0',
        'assay_webhook_deliveries{state="failed"} 0.0',
        "assay_oldest_queued_job_seconds 0.0",
        'assay_worker_memory_bytes{worker="worker-7"} 9.0',
        'assay_engine_tokens_total{worker="worker-7"} 12.0',
        'assay_engine_waiting_tokens{worker="worker-7"} 3.0',
        'assay_cache_bytes{cache="document",worker="worker-7"} 5.0',
        'assay_cache_hits_total{cache="document",worker="worker-7"} 2.0',
        'assay_cache_bytes{cache="disk",worker="worker-7"} 6.0',
        'assay_cache_entries{cache="prefix",worker="worker-7"} 3.0',
        'assay_engine_label_fallbacks_total{worker="worker-7"} 8.0',
        'assay_worker_sync_total{outcome="answered",worker="worker-7"} 4.0',
        'assay_worker_chunks_total{outcome="done",worker="worker-7"} 6.0',
        'assay_worker_chunk_seconds_total{worker="worker-7"} 2.5',
        'assay_worker_chunk_pairs_total{worker="worker-7"} 640.0',
        'assay_remote_calls_total{model="far",outcome="answered",worker="worker-7"} 5.0',
        'assay_remote_seconds_total{model="far",worker="worker-7"} 1.5',
        'assay_remote_shut{model="far",worker="worker-7"} 1.0',
        'assay_model_documents_kept_bytes{memory="host",model="late",worker="worker-7"} 5.0',
        'assay_model_documents_kept_bytes{memory="device",model="late",worker="worker-7"} 4.0',
        'assay_returned_chunks{cause="worker_crashed"} 0.0',
        'assay_chunks_returned_total{cause="worker_crashed"} 0.0',
        'assay_queued_messages{of="",queue="batch"} 0.0',
    ):
        assert line in scraped, line
    statistics["problem"] = "DEVICE is 'cuda', but"
    worker_heartbeat(worker=worker, progress=1, memory_bytes=9, in_hand=[], statistics=statistics)
    page = browser_client.get("/workers/").content.decode()
    for words in ("Document cache, disk", "Prefix cache", "label fallbacks", "DEVICE is"):
        assert words in page, words
    worker_move(worker=worker, to=WorkerState.GONE, reason="test")
    assert "worker-7" not in client.get("/metrics").content.decode()
