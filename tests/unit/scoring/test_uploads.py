"""Files that nobody came back for, and those that a killed process left."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.uploads import UnnamedUploadedFile
from scoring.models import Upload
from scoring.services.uploads import upload_stage, uploads_sweep
from tests.disk import no_file_grows_beyond

HOURS = 5


@pytest.fixture
def stored(settings: Settings, tmp_path: Path) -> Path:
    """The folder of staged files."""
    settings.MEDIA_ROOT = tmp_path
    settings.UPLOAD_KEEP_HOURS = HOURS
    return tmp_path / "uploads"


def staged(principal: Principal) -> Upload:
    return upload_stage(principal=principal, kind_name="documents", file=SimpleUploadedFile("a.csv", b"id,text\n1,a\n"))


def age(path: Path, *, hours: float) -> None:
    moment = (timezone.now() - timedelta(hours=hours)).timestamp()
    os.utime(path, (moment, moment))


def test_a_forgotten_upload_goes_with_its_file(
    principal: Principal, stored: Path, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    old, new = staged(principal), staged(principal)
    Upload.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=HOURS + 1))
    with django_capture_on_commit_callbacks(execute=True):
        assert uploads_sweep() == 1
    assert [upload.pk for upload in Upload.objects.all()] == [new.pk]
    assert [path.name for path in stored.iterdir()] == [Path(str(new.file.name)).name]
    assert uploads_sweep() == 0


def test_a_file_without_a_row_goes_once_it_is_old(principal: Principal, stored: Path) -> None:
    kept = staged(principal)
    left, young = stored / "left", stored / "young"
    for path in (left, young):
        path.write_bytes(b"half a fi")
    age(left, hours=HOURS + 1)
    age(young, hours=HOURS - 1)
    age(stored / Path(str(kept.file.name)).name, hours=HOURS + 1)  # old, but it has its row
    assert uploads_sweep() == 1
    assert not left.exists() and young.exists() and Upload.objects.count() == 1


def test_nothing_was_ever_stored(db: None, stored: Path) -> None:
    assert uploads_sweep() == 0


def test_a_file_that_is_being_received_has_no_name(settings: Settings, tmp_path: Path) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    file = UnnamedUploadedFile("a.csv", "text/csv")
    file.receive(b"id,text\n")
    file.complete(8)
    assert file.read() == b"id,text\n" and list(tmp_path.iterdir()) == []
    file.close()


def test_of_a_file_that_finds_no_room_nothing_is_staged(principal: Principal, stored: Path) -> None:
    large = SimpleUploadedFile("a.csv", bytes(3 << 20))
    with no_file_grows_beyond(1 << 20), pytest.raises(AssayError) as refusal:
        upload_stage(principal=principal, kind_name="documents", file=large)
    assert (refusal.value.status, refusal.value.code) == (507, "no_room")
    assert list(stored.iterdir()) == [] and not Upload.objects.exists()
