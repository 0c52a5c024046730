"""A document set encoded ahead by a real worker: what scores it then reads the query only, and it can be given back."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from assay.errors import AssayError
from scoring.models import Document, DocumentSet, ScoringModel, SetEncoding
from scoring.selectors.encodings import encoding_estimate, set_encodings
from scoring.services.encodings import encoding_ask, encoding_cancel, encoding_delete, encodings_reclaim
from scoring.services.imports import set_import
from scoring.services.workers import worker_register
from scoring.states import EncodingState, PlacementState
from tests.engine.tiny import CORPUS
from tests.integration.rig import Rig, wait_for
from workers.encodings import Encodings
from workers.engine import ScoringRequest

ROWS = [f"d{i},{' '.join(CORPUS[i % 5].split()[: 3 + i % 9]).replace(',', ' ')} {i}" for i in range(150)]


@pytest.fixture
def encodings(rig: Rig) -> Iterator[Encodings]:
    encodings = Encodings(engine=rig.engine, host=rig.host, worker=rig.worker)
    encodings.start()
    yield encodings
    assert encodings.stop(timeout=30)


@pytest.fixture
def document_set(rig: Rig) -> DocumentSet:
    file = io.BytesIO("\n".join(("id,text", *ROWS)).encode())
    uploaded, _ = set_import(
        principal=rig.principal, kind_name="documents", name="Many", file=file, file_name="many.csv"
    )
    assert isinstance(uploaded, DocumentSet)
    return uploaded


def served(rig: Rig, name: str) -> ScoringModel:
    model = rig.register(name)
    rig.wait_for_placement(model, PlacementState.READY)
    model.refresh_from_db()
    return model


def test_a_set_is_encoded_ahead_and_given_back(rig: Rig, encodings: Encodings, document_set: DocumentSet) -> None:
    model = served(rig, "ahead")
    before = encoding_estimate(document_set, model)
    assert before.documents == 150 and before.size  # by the self-test's texts

    (encoding,) = encoding_ask(principal=rig.principal, document_set=document_set, model=model)
    assert encoding.worker == rig.worker
    with pytest.raises(AssayError, match="being encoded") as again:
        encoding_ask(principal=rig.principal, document_set=document_set, model=model)
    assert again.value.code == "already_encoded"

    def ended() -> bool:
        encodings.wake()
        encoding.refresh_from_db()
        return encoding.state != EncodingState.WAITING and encoding.state != EncodingState.RUNNING

    wait_for(ended, seconds=60, what="the end of the encoding")
    assert encoding.state == EncodingState.DONE, encoding.error
    assert encoding.documents_done == 150 and encoding.tokens > 0
    assert encoding.size == rig.engine.statistics().document_cache.bytes > 0
    after = encoding_estimate(document_set, model)
    assert after.size is not None and after.tokens and before.size is not None
    assert 0.5 < before.size / encoding.size < 2  # from words and the self-test's texts alone
    (row,) = set_encodings(document_set)
    assert row.is_kept and row.percent == 100

    texts = tuple(Document.objects.filter(document_set=document_set).values_list("text", flat=True))
    output = rig.host.submit(model.pk, ScoringRequest("ahead", ("rain",), texts), interactive=True).result(60)
    assert output.cached_documents == 150

    encoding_delete(principal=rig.principal, encoding=encoding)
    wait_for(lambda: encodings.wake() or not SetEncoding.objects.exists(), what="the end of the deletion")
    assert rig.engine.statistics().document_cache.bytes == 0


def test_what_was_encoded_in_the_memory_of_an_ended_process_is_lost(rig: Rig, document_set: DocumentSet) -> None:
    model = served(rig, "lost")
    (encoding,) = encoding_ask(principal=rig.principal, document_set=document_set, model=model)
    encoding_cancel(principal=rig.principal, encoding=encoding)
    assert encoding.state == EncodingState.CANCELLED
    (encoding,) = encoding_ask(principal=rig.principal, document_set=document_set, model=model)
    worker = rig.worker
    SetEncoding.objects.filter(pk=encoding.pk).update(state=EncodingState.RUNNING, boot_id=worker.boot_id)
    worker_register(
        worker_id=worker.pk, boot_id=document_set.pk, name=worker.name, host="here", pid=2, device=worker.device
    )
    assert encodings_reclaim() == 1
    encoding.refresh_from_db()
    assert encoding.state == EncodingState.FAILED and "ended meanwhile" in encoding.error
