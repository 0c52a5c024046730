"""A bad value stops with one sentence that names the variable."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from assay.settings import env


@pytest.mark.parametrize(("given", "expected"), [("8000", 8000), (" 1 ", 1), (None, 7), ("", 7)])
def test_integer_reads_or_falls_back(monkeypatch: pytest.MonkeyPatch, given: str | None, expected: int) -> None:
    if given is not None:
        monkeypatch.setenv("ASSAY_T", given)
    assert env.integer("ASSAY_T", 7) == expected


@pytest.mark.parametrize("given", ["0", "65536", "1.5", "many", "0x10", "-3", "1e3", "٣", "9" * 5000])
def test_integer_refuses(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("WEB_PORT", given)
    with pytest.raises(ImproperlyConfigured, match=r"^WEB_PORT is '.+'; give a whole number from 1 to 65535\.$"):
        env.integer("WEB_PORT", 8000, minimum=1, maximum=65535)


@pytest.mark.parametrize(("given", "expected"), [("1", True), ("YES", True), ("off", False), ("False", False)])
def test_boolean(monkeypatch: pytest.MonkeyPatch, given: str, expected: bool) -> None:
    monkeypatch.setenv("DEBUG", given)
    assert env.boolean("DEBUG", not expected) is expected


def test_boolean_refuses_what_is_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", "maybe")
    with pytest.raises(ImproperlyConfigured, match="DEBUG is 'maybe'"):
        env.boolean("DEBUG", False)


@pytest.mark.parametrize(
    ("given", "usable"), [("auto", True), ("cuda:3", True), ("gpu", False), ("cuda:", False), ("cpu,cuda", False)]
)
def test_choice(monkeypatch: pytest.MonkeyPatch, given: str, usable: bool) -> None:
    monkeypatch.setenv("DEVICE", given)

    def read() -> str:
        return env.choice("DEVICE", "auto", pattern=r"auto|cpu|cuda(:\d{1,2})?", valid="auto, cpu, cuda or cuda:N")

    if usable:
        assert read() == given
    else:
        with pytest.raises(ImproperlyConfigured, match="give auto, cpu, cuda or cuda:N"):
            read()


def test_a_refused_url_never_shows_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://root:hunter2@db/assay")
    with pytest.raises(ImproperlyConfigured) as raised:
        env.url("DATABASE_URL", schemes=("postgresql",))
    assert "DATABASE_URL" in str(raised.value) and "mysql" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_folder_may_not_be_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(ImproperlyConfigured, match="DATA_DIR"):
        env.data_dir()


def test_model_roots_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL_ROOTS", f"{tmp_path}:{tmp_path / 'gone'}")
    with pytest.raises(ImproperlyConfigured, match=r"MODEL_ROOTS is '.*gone'"):
        env.folders("MODEL_ROOTS")


def test_secret_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from the file\n")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    assert env.secret("SECRET_KEY") == "from the file"


@pytest.mark.parametrize("content", [None, ""])
def test_an_unusable_secret_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY_FILE"):
        env.secret("SECRET_KEY")


def test_a_missing_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    with pytest.raises(ImproperlyConfigured, match=r"^SECRET_KEY is not set; .*SECRET_KEY_FILE"):
        env.secret("SECRET_KEY")


def test_a_created_secret_is_private_and_stays(tmp_path: Path) -> None:
    first = env.secret("ASSAY_T", create_in=tmp_path / "secrets")
    file = tmp_path / "secrets" / "assay_t"
    assert len(first) >= 50
    assert env.secret("ASSAY_T", create_in=tmp_path / "secrets") == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["assay_t"]


def test_peppers(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "o" * 32, "n" * 32
    monkeypatch.setenv("TOKEN_PEPPERS", f"1:{old}, 2:{new}")
    assert env.peppers("TOKEN_PEPPERS") == {1: old, 2: new}


@pytest.mark.parametrize("given", ["1:short", "x:" + "o" * 32, "o" * 40, f"1:{'o' * 32},1:{'n' * 32}"])
def test_peppers_refuse_and_do_not_show_them(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("TOKEN_PEPPERS", given)
    with pytest.raises(ImproperlyConfigured, match="TOKEN_PEPPERS must be pairs") as raised:
        env.peppers("TOKEN_PEPPERS")
    assert "oooo" not in str(raised.value)


def test_postgres_url_parts() -> None:
    parts = env.postgres("postgresql://me:p%40ss@db.example:6543/assay?sslmode=require")
    assert parts["USER"] == "me" and parts["PASSWORD"] == "p@ss" and parts["HOST"] == "db.example"
    assert parts["PORT"] == "6543" and parts["NAME"] == "assay" and parts["OPTIONS"]["sslmode"] == "require"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("redis://:pw@host:6379/2", "redis://:pw@host:6379/2"),
        ("unix:///run/a/redis.sock?db=3", "redis+socket:///run/a/redis.sock?virtual_host=3"),
        ("unix:///run/a/redis.sock", "redis+socket:///run/a/redis.sock?virtual_host=0"),
    ],
)
def test_celery_broker(given: str, expected: str) -> None:
    assert env.celery_broker(given) == expected


S3 = "s3://texts/assay/files?endpoint_url=https://store.example&region_name=eu"


def test_addresses_may_be_files_as_secrets_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://assay:pw@db:5432/assay\n")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    assert env.given("DATABASE_URL")
    assert env.postgres(env.url("DATABASE_URL", schemes=("postgresql",)))["PASSWORD"] == "pw"
    monkeypatch.setenv("DATABASE_URL", "postgresql://other/assay")
    with pytest.raises(
        ImproperlyConfigured, match=r"^DATABASE_URL and DATABASE_URL_FILE are both set; give one of them"
    ):
        env.url("DATABASE_URL", schemes=("postgresql",))


def test_a_wrong_address_in_a_file_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://assay:hunter2@db/assay")
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("REDIS_URL_FILE", str(tmp_path / "url"))
    with pytest.raises(ImproperlyConfigured, match=r"^REDIS_URL is 'http://…'; give a URL such as redis") as raised:
        env.url("REDIS_URL", schemes=("redis",))
    assert "hunter2" not in str(raised.value)


def test_a_link_to_the_database_is_given_up_in_time_unless_the_address_says_otherwise() -> None:
    options = env.postgres("postgresql://db/assay?connect_timeout=3&sslmode=require")["OPTIONS"]
    assert options == {**env.LINK_PATIENCE, "connect_timeout": "3", "sslmode": "require"}


def test_files_lie_in_a_folder_or_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.storage("STORAGE_URL") == {"BACKEND": "django.core.files.storage.FileSystemStorage"}
    monkeypatch.setenv("STORAGE_URL", S3)
    monkeypatch.setenv("STORAGE_URL_ACCESS_KEY", "key")
    monkeypatch.setenv("STORAGE_URL_SECRET_KEY", "secret")
    options = env.storage("STORAGE_URL")["OPTIONS"]
    assert (options["bucket_name"], options["location"]) == ("texts", "assay/files")
    assert (options["endpoint_url"], options["region_name"]) == ("https://store.example", "eu")
    assert (options["access_key"], options["secret_key"]) == ("key", "secret")


@pytest.mark.parametrize("given", ["gs://texts", "s3:///files", "s3://key:secret@texts/", "s3://texts?acl=public"])
def test_a_bucket_that_cannot_be(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("STORAGE_URL", given)
    with pytest.raises(ImproperlyConfigured, match=r"^STORAGE_URL is .*; give ") as raised:
        env.storage("STORAGE_URL")
    assert "secret" not in str(raised.value)


def test_half_a_pair_of_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_URL", S3)
    monkeypatch.setenv("STORAGE_URL_ACCESS_KEY", "key")
    with pytest.raises(ImproperlyConfigured, match="belong together"):
        env.storage("STORAGE_URL")


def test_hosts_are_names_addresses_and_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTGOING_ALLOWED_HOSTS", "hooks.example.org:8443, 10.1.0.0/16,[::1]:8080,::1")
    assert len(env.hosts("OUTGOING_ALLOWED_HOSTS")) == 4
    for given in ("https://hooks.example.org", "*", "10.1.0.0/64", "a b"):
        monkeypatch.setenv("OUTGOING_ALLOWED_HOSTS", given)
        with pytest.raises(ImproperlyConfigured, match="OUTGOING_ALLOWED_HOSTS is"):
            env.hosts("OUTGOING_ALLOWED_HOSTS")


def test_credentials_belong_to_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_CREDENTIALS", "cohere@api.cohere.com=sk-1, near@10.0.0.1:8000=a=b\n")
    assert env.credentials("REMOTE_CREDENTIALS") == {
        "cohere": ("api.cohere.com", "sk-1"),
        "near": ("10.0.0.1:8000", "a=b"),
    }
    for given in ("cohere=sk-1", "a@b=hunter2,a@c=hunter2", "@b=hunter2"):
        monkeypatch.setenv("REMOTE_CREDENTIALS", given)
        with pytest.raises(ImproperlyConfigured, match="REMOTE_CREDENTIALS must be pairs") as raised:
            env.credentials("REMOTE_CREDENTIALS")
        assert "hunter2" not in str(raised.value)
