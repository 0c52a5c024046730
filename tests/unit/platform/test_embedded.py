"""The local servers: they survive kill -9, keep what was written, and are stopped by whoever leaves last."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from assay import embedded


def write(data_dir: Path) -> None:
    with psycopg.connect(embedded.database_url(data_dir)) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    with redis.Redis.from_url(embedded.redis_url(data_dir)) as client:
        client.set("kept", 7)
        client.execute_command("WAITAOF", 1, 0, 5000)


def read(data_dir: Path) -> tuple[int, int]:
    with psycopg.connect(embedded.database_url(data_dir)) as connection:
        row = connection.execute("SELECT n FROM kept").fetchone()
    with redis.Redis.from_url(embedded.redis_url(data_dir)) as client:
        return row[0] if row else -1, int(client.get("kept") or -1)


def pids(data_dir: Path) -> list[int]:
    """The two servers' process ids."""
    postgres = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    with redis.Redis.from_url(embedded.redis_url(data_dir)) as client:
        return [postgres, int(client.info("server")["process_id"])]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_until_gone(numbers: list[int]) -> None:
    give_up = time.monotonic() + 20
    while any(alive(number) for number in numbers):
        assert time.monotonic() < give_up, f"still alive: {[n for n in numbers if alive(n)]}"
        time.sleep(0.05)


def test_they_survive_kill_and_a_stale_pid_file_that_names_somebody_else(data_dir: Path) -> None:
    with embedded.servers(data_dir):
        write(data_dir)
        killed = pids(data_dir)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until_gone(killed)
        pid_file = data_dir / "postgres" / "postmaster.pid"
        pid_file.write_text(pid_file.read_text().replace(str(killed[0]), str(os.getpid()), 1))
    with embedded.servers(data_dir):
        assert read(data_dir) == (7, 7)
        last = pids(data_dir)
    wait_until_gone(last)


def test_the_last_user_stops_them(data_dir: Path) -> None:
    with embedded.servers(data_dir):
        first = pids(data_dir)
        with embedded.servers(data_dir):
            assert pids(data_dir) == first
        assert pids(data_dir) == first
    wait_until_gone(first)


def test_a_setup_that_was_killed_half_way_is_done_again(data_dir: Path) -> None:
    half = data_dir / "postgres"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    (half / "base").mkdir()
    with embedded.servers(data_dir, redis=False), psycopg.connect(embedded.database_url(data_dir)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_two_folders_do_not_meet_and_a_long_path_works(data_dir: Path) -> None:
    long = data_dir / ("a" * 60) / ("b" * 60)
    with embedded.servers(data_dir / "one"), embedded.servers(long):
        write(long)
        assert read(long) == (7, 7)
        assert set(pids(long)).isdisjoint(pids(data_dir / "one"))
        with pytest.raises(psycopg.errors.UndefinedTable):
            read(data_dir / "one")


def test_redis_keeps_messages_under_pressure_and_over_restarts(data_dir: Path) -> None:
    with (
        embedded.servers(data_dir, postgres=False),
        redis.Redis.from_url(embedded.redis_url(data_dir), decode_responses=True) as client,
    ):
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("port") == {"port": "0"}
