"""The only way in which the platform asks other hosts for anything: one guarded HTTP request at a time.

Addresses come from people, so they are hostile until shown otherwise. A name is resolved here, once; every address it
has must be public; the connection goes to an address that was checked, while certificate and ``Host`` keep the name.
Each request has an end in time and a limit of bytes; nothing is redirected, decompressed or sent through a proxy. A
connection is used again only by requests that may be repeated, and only while the name, resolved and checked anew for
each of them, still has its address. What the operator lists in OUTGOING_ALLOWED_HOSTS may be private, and plain HTTP.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore
from django.conf import settings

from assay.outgoing_connections import Address, Connection, Kept, Peer

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[..., Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]]  # as socket.getaddrinfo

MAX_URL: Final = 2000
PORTS: Final = {"http": 80, "https": 443}
HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
# IPv6 addresses whose last 32 bits are an IPv4 address that the packets end up at.
CARRIES_IPV4: Final = tuple(ipaddress.IPv6Network(net) for net in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))
GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
# Clouds hand out credentials there, though the address itself is a public one.
METADATA: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
KEPT: Final = Kept()


class OutgoingError(Exception):
    """The request was not made, or not answered. ``code``: bad_url, forbidden_address, unreachable, timeout, redirected
    or answer_refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """An address taken apart; ``host`` in lower case, without brackets and without the root's dot."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class AllowList:
    """``host``, ``host:port``, addresses and networks. A name stands for private addresses too, but link-local ones,
    where clouds keep their credentials, must be listed as such."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: list[Network] = []
        self._names: set[tuple[str, int | None]] = set()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.add(_name_and_port(entry))

    def has_name(self, host: str, port: int) -> bool:
        return bool({(host, None), (host, port)} & self._names)

    def may_have(self, host: str, port: int) -> bool:
        """As far as can be said before the name is resolved."""
        return bool(self._networks) or self.has_name(host, port)

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


class Outgoing:
    def __init__(
        self,
        *,
        allowed: Iterable[str] = (),
        listed_only: bool = False,
        ca_file: str = "",
        resolve: Resolve = socket.getaddrinfo,
    ) -> None:
        """``allowed`` as in OUTGOING_ALLOWED_HOSTS; ``listed_only``: nobody else, be they as public as they like;
        ``ca_file``: certificates to trust beside the public ones."""
        self._allowed = AllowList(allowed)
        self._listed_only = listed_only
        self._ca_file = ca_file
        self._resolve = resolve

    def check(self, url: str) -> Target:
        """What can be said without asking anybody: the form of ``url``, and an address given in place of a name, in
        whatever spelling. Raises OutgoingError."""
        target = parse(url)
        try:
            found = self._resolve(target.host, target.port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):  # a name
            if target.host.rstrip(".").rpartition(".")[2] == "localhost":  # RFC 6761: never another machine
                self._demand(target, [ipaddress.ip_address("127.0.0.1")])
            if self._listed_only and not self._allowed.may_have(target.host, target.port):
                raise _unlisted(target) from None
            if target.scheme == "http" and not self._allowed.may_have(target.host, target.port):
                raise _plain(target) from None
            return target
        self._demand(target, _addresses(found))
        return target

    def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float,
        max_bytes: int | None,
        repeatable: bool = False,
    ) -> Answer:
        """``timeout``: seconds for all of it; ``max_bytes``: of the answer's body, None: it is not read at all;
        ``repeatable``: it does no harm to ask twice, as may happen when a kept connection turns out to be broken.

        Any status but a redirection is an answer. Raises OutgoingError.
        """
        target = parse(url)
        end = time.monotonic() + timeout
        addresses = self._resolved(target)
        peer = Peer(target.scheme, target.host, target.port, self._ca_file)
        sent = {"Host": target.authority, "Accept-Encoding": "identity", **(headers or {})}
        sent |= {"Connection": "keep-alive" if repeatable else "close", "Content-Length": str(len(content))}

        def ask(connection: Connection) -> Answer:
            asked = connection.ask(method, target.path, addresses=addresses, headers=sent, content=content, end=end)
            try:
                with asked as response:
                    return _answer(response, target, max_bytes)
            finally:
                KEPT.put(connection)

        try:
            if repeatable and (kept := KEPT.take(peer, addresses)):
                try:
                    return ask(kept)
                except (httpcore.NetworkError, httpcore.RemoteProtocolError):
                    pass  # the other side closed it meanwhile
            return ask(Connection(peer))
        except httpcore.TimeoutException as error:
            raise OutgoingError("timeout", f"{target.authority} gave no answer within {timeout:g} s.") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError, OSError) as error:
            said = str(error) or type(error).__name__
            raise OutgoingError("unreachable", f"{target.authority} could not be asked: {said}.") from error

    def _resolved(self, target: Target) -> list[Address]:
        try:
            found = self._resolve(target.host, target.port, 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise OutgoingError("unreachable", f"The name {target.host} cannot be resolved: {error}.") from error
        addresses = _addresses(found)
        self._demand(target, addresses)
        return addresses

    def _demand(self, target: Target, addresses: Sequence[Address]) -> None:
        """All of them: a name with one public and one private address is no accident."""
        if not addresses:
            raise OutgoingError("unreachable", f"The name {target.host} has no address.")
        by_name = self._allowed.has_name(target.host, target.port)
        for address in addresses:
            if self._allowed.has_address(address) or (by_name and not is_special(address)):
                continue
            if self._listed_only:
                raise _unlisted(target)
            if not is_public(address):
                raise OutgoingError(
                    "forbidden_address",
                    f"{target.host} leads to {address}, which is not a public address. Give a public one, or have the "
                    "operator list the host in OUTGOING_ALLOWED_HOSTS.",
                )
            if target.scheme == "http":
                raise _plain(target)


def outgoing(*, listed_only: bool = False) -> Outgoing:
    """As the settings say."""
    return Outgoing(allowed=settings.OUTGOING_ALLOWED_HOSTS, listed_only=listed_only, ca_file=settings.OUTGOING_CA_FILE)


def parse(url: str) -> Target:
    """Raises OutgoingError ``bad_url``. Strict: what two parsers may read differently is refused."""
    shown = url[:100]
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
        raise _bad_url(f"The URL begins {shown!r}; give at most {MAX_URL} ASCII characters, others percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad_url(f"The URL {shown!r} cannot be read ({error}); give https://host/path") from error
    host = (parts.hostname or "").removesuffix(".")
    if parts.scheme not in PORTS or not host:
        raise _bad_url(f"The URL is {shown!r}; give one such as https://host/path")
    if "@" in parts.netloc:
        raise _bad_url("The URL holds a user name or a password, which would end up in logs; leave them out")
    if "#" in url:
        raise _bad_url(f"The URL {shown!r} has a fragment, which is never sent; leave it out")
    if port == 0 or not (_is_ipv6(host) if ":" in host else HOST_NAME.fullmatch(host)):
        raise _bad_url(f"The URL {shown!r} names no host; give a name in its ASCII form, or an address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path)


def is_public(address: Address) -> bool:
    address = _inner(address)
    if address in METADATA or address.is_multicast or not address.is_global:
        return False
    return isinstance(address, ipaddress.IPv4Address) or address in GLOBAL_UNICAST


def is_special(address: Address) -> bool:
    """No host of anybody's network: link-local, multicast, unspecified, or a cloud's metadata."""
    address = _inner(address)
    return address.is_link_local or address.is_multicast or address.is_unspecified or address in METADATA


def _answer(response: httpcore.Response, target: Target, max_bytes: int | None) -> Answer:
    headers = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in response.headers}
    if 300 <= response.status < 400:
        raise OutgoingError(
            "redirected",
            f"{target.authority} answered {response.status} and points elsewhere, which is not followed. Give the "
            "address that it points to.",
        )
    if max_bytes is None:
        return Answer(response.status, headers, b"")
    if headers.get("content-encoding", "identity") != "identity":
        raise OutgoingError("answer_refused", f"{target.authority} sent a compressed answer, which nobody asked for.")
    content = b""
    for part in response.iter_stream():
        content += part
        if len(content) > max_bytes:
            raise OutgoingError(
                "answer_refused", f"The answer of {target.authority} is longer than {max_bytes:,} bytes."
            )
    return Answer(response.status, headers, content)


def _addresses(found: Iterable[tuple[Any, Any, Any, Any, tuple[Any, ...]]]) -> list[Address]:
    """Without repetition, in the resolver's order."""
    return list(dict.fromkeys(ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found))


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, if it does."""
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in CARRIES_IPV4):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.sixtofour or address
    return address


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _name_and_port(entry: str) -> tuple[str, int | None]:
    target = parse(f"https://{entry}")
    return target.host, urlsplit(f"https://{entry}").port


def _unlisted(target: Target) -> OutgoingError:
    return OutgoingError(
        "forbidden_address",
        f"{target.authority} is not listed in OUTGOING_ALLOWED_HOSTS; have the operator list it, or give a host that "
        "is.",
    )


def _plain(target: Target) -> OutgoingError:
    return OutgoingError(
        "bad_url",
        f"http://{target.authority} is not encrypted; give an https address, or have the operator list the host in "
        "OUTGOING_ALLOWED_HOSTS.",
    )


def _bad_url(message: str) -> OutgoingError:
    return OutgoingError("bad_url", f"{message}.")
