"""The guarded client against real local servers: where it must not go, whom it believes, when it gives up."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from assay import outgoing_connections
from assay.outgoing import Answer, Outgoing, OutgoingError, is_public, is_special
from tests.security.receiver import CERTIFICATE, Received, Receiver, receiving, reply


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def resolving(*answers: str) -> Any:
    """A resolver that gives another answer each time it is asked, and numbers what numbers are."""
    left = list(answers)

    def resolve(host: str, port: int, family: int = 0, kind: int = 0, proto: int = 0, flags: int = 0) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return socket.getaddrinfo(host, port, family, kind, proto, flags)
        return [place for word in left.pop(0).split() for place in socket.getaddrinfo(word, port, 0, kind)]

    return resolve


def ask(outgoing: Outgoing, url: str, *, timeout: float = 10, max_bytes: int = 1000, **given: Any) -> Answer:
    return outgoing.request("POST", url, content=b"{}", timeout=timeout, max_bytes=max_bytes, **given)


def refused(outgoing: Outgoing, url: str, **given: Any) -> str:
    with pytest.raises(OutgoingError) as raised:
        ask(outgoing, url, **given)
    return raised.value.code


SPELLINGS = (
    "127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "127.1", "0", "localhost", "localhost.",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]", "169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "169.254.169.254.",
    "[fd00:ec2::254]", "[fe80::1]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.100.100.200", "224.0.0.1",
    "[ff02::1]", "168.63.129.16", "0.0.0.0", "255.255.255.255",
)  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_spelling_leads_inside(receiver: Receiver, scheme: str, host: str) -> None:
    assert refused(Outgoing(), f"{scheme}://{host}:{receiver.port}/") in ("forbidden_address", "bad_url")
    assert receiver.requests == []


@pytest.mark.parametrize("host", [*SPELLINGS, "app.localhost"])
def test_an_address_in_any_spelling_is_refused_before_anybody_is_asked(host: str) -> None:
    with pytest.raises(OutgoingError):
        Outgoing().check(f"https://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@example.org/", "https://example.org@127.0.0.1/", "https://example.org/#part",
        "https:/example.org", "ftp://example.org/", "file:///etc/passwd", "//example.org/", "https://", "https://.",
        "https://exa mple.org/", "https://example.org\\@127.0.0.1/", "https://example.org\n/", "https://exämple.org/",
        "https://example.org:0/", "https://example.org:99999/", "https://[::1%25eth0]/", "https://[fe80::1%lo]/",
        "https://" + "a" * 2000, "https://[127.0.0.1]/", "https://127.0.0.1%2f.example.org/",
    ],
)  # fmt: skip
def test_what_two_parsers_may_read_differently_is_refused(url: str) -> None:
    with pytest.raises(OutgoingError) as raised:
        Outgoing().check(url)
    assert raised.value.code in ("bad_url", "forbidden_address")
    assert "secret" not in str(raised.value)


def test_plain_http_needs_the_operators_word(receiver: Receiver) -> None:
    url = f"http://hooks.test:{receiver.port}/"
    with pytest.raises(OutgoingError, match="not encrypted"):
        Outgoing().check(url)
    assert refused(Outgoing(resolve=resolving("93.184.216.34")), url) == "bad_url"
    assert Outgoing(allowed=["hooks.test"]).check(url).host == "hooks.test"


@pytest.mark.parametrize("entry", ["hooks.test", "HOOKS.TEST:{port}", "127.0.0.0/8", "127.0.0.1"])
def test_listed_hosts_are_asked(receiver: Receiver, entry: str) -> None:
    outgoing = Outgoing(allowed=[entry.format(port=receiver.port)], resolve=resolving("127.0.0.1"))
    answer = ask(outgoing, f"http://hooks.test:{receiver.port}/a?b=c", headers={"X-One": "1"})
    assert (answer.status, answer.content) == (200, b"ok")
    (received,) = receiver.requests
    assert (received.method, received.path, received.body) == ("POST", "/a?b=c", b"{}")
    assert received.headers["host"] == f"hooks.test:{receiver.port}" and received.headers["x-one"] == "1"


@pytest.mark.parametrize("entry", ["other.test", "hooks.test:1", "10.0.0.0/8"])
def test_others_are_not(receiver: Receiver, entry: str) -> None:
    outgoing = Outgoing(allowed=[entry], resolve=resolving("127.0.0.1"))
    assert refused(outgoing, f"https://hooks.test:{receiver.port}/") == "forbidden_address"


def test_a_listed_name_does_not_open_the_metadata_address() -> None:
    for address in ("169.254.169.254", "168.63.129.16", "fe80::1", "224.0.0.1"):
        outgoing = Outgoing(allowed=["hooks.test"], resolve=resolving(address))
        assert refused(outgoing, "http://hooks.test/") == "forbidden_address"


def test_a_name_that_changes_its_address_is_resolved_once(receiver: Receiver) -> None:
    """First public, then private: the second answer is never asked for. And one of both kinds is refused."""
    outgoing = Outgoing(resolve=resolving("192.0.2.1 93.184.216.34", "127.0.0.1"))
    assert refused(outgoing, f"https://rebinding.test:{receiver.port}/") == "forbidden_address"
    outgoing = Outgoing(resolve=resolving("93.184.216.34 127.0.0.1"))
    assert refused(outgoing, f"https://rebinding.test:{receiver.port}/") == "forbidden_address"
    listed = Outgoing(allowed=["127.0.0.1"], resolve=resolving("127.0.0.1", "10.0.0.1"))
    assert ask(listed, f"http://rebinding.test:{receiver.port}/").status == 200
    assert refused(listed, f"http://rebinding.test:{receiver.port}/") == "forbidden_address"


def test_the_certificate_is_checked_against_the_name_not_the_address() -> None:
    def outgoing(ca_file: str = str(CERTIFICATE)) -> Outgoing:
        return Outgoing(allowed=["127.0.0.1"], ca_file=ca_file, resolve=resolving("127.0.0.1"))

    with receiving(tls=True) as receiver:
        assert ask(outgoing(), f"https://pinned.test:{receiver.port}/").status == 200
        assert refused(outgoing(), f"https://other.test:{receiver.port}/") == "unreachable"
        assert refused(outgoing(""), f"https://pinned.test:{receiver.port}/") == "unreachable"
        assert len(receiver.requests) == 1


def test_nothing_is_redirected_or_sent_through_a_proxy(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as elsewhere:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.port}")
        outgoing = Outgoing(allowed=["127.0.0.1"])
        assert ask(outgoing, f"http://127.0.0.1:{receiver.port}/").status == 200
        receiver.reply = reply(302, Location=f"http://127.0.0.1:{elsewhere.port}/")
        assert refused(outgoing, f"http://127.0.0.1:{receiver.port}/") == "redirected"
        assert elsewhere.requests == []


def test_long_and_compressed_answers_are_refused(receiver: Receiver) -> None:
    outgoing, url = Outgoing(allowed=["127.0.0.1"]), f"http://127.0.0.1:{receiver.port}/"
    receiver.reply = reply(200, b"x" * 1000)
    assert len(ask(outgoing, url).content) == 1000
    receiver.reply = reply(200, b"x" * 1001)
    assert refused(outgoing, url) == "answer_refused"
    receiver.reply = reply(200, gzip.compress(b"x" * 100_000), Content_Encoding="gzip")
    assert refused(outgoing, url) == "answer_refused"


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_dripping_answer_ends_in_time(receiver: Receiver, part: str) -> None:
    """Every byte comes well before a socket's patience would end; the whole must end all the same."""

    def drip(handler: BaseHTTPRequestHandler, received: Received) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 999\r\n\r\n" if part == "body" else b"X: "))
        while True:  # until the client hangs up
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)

    receiver.reply = drip
    outgoing = Outgoing(allowed=["127.0.0.1"])
    assert refused(outgoing, f"http://127.0.0.1:{receiver.port}/", timeout=0.5) == "timeout"


def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert refused(Outgoing(allowed=["127.0.0.1"]), url) == "unreachable"


def test_public_means_public() -> None:
    for word in ("93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"):
        assert is_public(ipaddress.ip_address(word)), word
    for word in ("192.0.2.1", "198.18.0.1", "240.0.0.1", "2001:db8::1", "fec0::1", "64:ff9b:1::1", "100::1"):
        assert not is_public(ipaddress.ip_address(word)), word
    assert not is_special(ipaddress.ip_address("::1")) and is_special(ipaddress.ip_address("::ffff:169.254.1.1"))


@pytest.fixture
def keeping() -> Iterator[Receiver]:
    with receiving(keep_alive=True) as running:
        yield running


def ports(receiver: Receiver) -> list[int]:
    return [received.client_port for received in receiver.requests]


def test_only_what_may_be_repeated_goes_over_a_kept_connection(keeping: Receiver) -> None:
    outgoing, url = Outgoing(allowed=["127.0.0.1"]), f"http://127.0.0.1:{keeping.port}/"
    for repeatable in (True, True, False, True):
        assert ask(outgoing, url, repeatable=repeatable).content == b"ok"
    first, second, alone, last = ports(keeping)
    assert first == second == last != alone
    assert [received.headers["connection"] for received in keeping.requests][1:3] == ["keep-alive", "close"]
    keeping.reply = reply(200, b"x" * 1001)
    assert refused(outgoing, url, repeatable=True) == "answer_refused"  # what is left of it is no answer to the next
    keeping.reply = reply(200, b"ok")
    assert ask(outgoing, url, repeatable=True).content == b"ok" and ports(keeping)[-1] != first


def test_a_kept_connection_that_broke_is_replaced_once(keeping: Receiver) -> None:
    outgoing, url = Outgoing(allowed=["127.0.0.1"]), f"http://127.0.0.1:{keeping.port}/"
    ask(outgoing, url, repeatable=True)
    (first,) = ports(keeping)

    def hang_up(handler: BaseHTTPRequestHandler, received: Received) -> None:
        handler.close_connection = True
        if received.client_port != first:
            reply(200, b"ok")(handler, received)

    keeping.reply = hang_up
    assert ask(outgoing, url, repeatable=True).content == b"ok"
    assert len(keeping.requests) == 3 and ports(keeping)[1] == first
    first = 0
    keeping.reply = lambda handler, received: setattr(handler, "close_connection", True)
    assert refused(outgoing, url, repeatable=True) == "unreachable"
    assert len(keeping.requests) == 4


def test_a_kept_connection_does_not_outlive_its_address_or_its_time(
    keeping: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is resolved and checked for every request, whatever connections there are."""
    answers = resolving("127.0.0.1", "127.0.0.2", "127.0.0.1", "10.0.0.1", "127.0.0.1", "127.0.0.1")
    outgoing, url = Outgoing(allowed=["127.0.0.0/8"], resolve=answers), f"http://moving.test:{keeping.port}/"
    assert ask(outgoing, url, repeatable=True).status == 200
    assert refused(outgoing, url, repeatable=True) == "unreachable"  # nobody listens there
    assert ask(outgoing, url, repeatable=True).status == 200
    assert refused(outgoing, url, repeatable=True) == "forbidden_address"
    monkeypatch.setattr(outgoing_connections, "IDLE_SECONDS", -1.0)
    for _ in range(2):
        assert ask(outgoing, url.replace("moving", "slow"), repeatable=True).status == 200
    assert len(set(ports(keeping))) == len(keeping.requests) == 4
