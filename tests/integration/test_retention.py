"""A job is submitted while somebody orders the deletion of its texts."""

from __future__ import annotations

import io
import threading
from typing import Any

from django.db import connection, transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.retention import texts_delete, texts_demand
from scoring.services.stages import StagePlan
from tests.integration.rig import wait_for


def imported(principal: Principal, kind: str) -> Any:
    file = io.BytesIO(b"id,text\n1,some words\n")
    return set_import(principal=principal, kind_name=kind, name=kind, file=file, file_name=f"{kind}.csv")[0]


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted")
        return cursor.fetchone() is not None


def test_the_order_waits_for_the_job_and_then_sees_it(principal: Principal, model: ScoringModel) -> None:
    documents, queries = imported(principal, "documents"), imported(principal, "queries")
    outcome: list[str] = []

    def order() -> None:
        try:
            texts_delete(principal=principal, uploaded=documents)
            outcome.append("deleted")
        except AssayError as refusal:
            outcome.append(refusal.code)
        finally:
            connection.close()

    ordering = threading.Thread(target=order)
    with transaction.atomic():
        texts_demand(document_set=documents)
        ordering.start()
        wait_for(somebody_waits, what="the order behind the lock")
        plan = [StagePlan(model=model)]
        job_submit(principal=principal, name="", stages=plan, document_set=documents, query_set=queries)
    ordering.join(timeout=30)
    assert outcome == ["set_in_use"]
