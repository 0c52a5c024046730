"""Where a request comes from, as far as that can be known."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from django.conf import settings
from django.http import HttpRequest

Address = IPv4Address | IPv6Address


def client_address(request: HttpRequest) -> Address | None:
    """The address that opened the connection; behind proxies of ``TRUSTED_PROXIES``, the one that they report.

    ``X-Forwarded-For`` is read from its end: each trusted proxy appended whom it heard, and what stands before the
    first stranger is that stranger's own word. None: the connection has no address (a Unix socket), or a trusted proxy
    reports something that is none.
    """
    hops = [request.META.get("REMOTE_ADDR", "")]
    if settings.TRUSTED_PROXIES:
        hops = [*request.headers.get("X-Forwarded-For", "").split(","), *hops]
    address = _parsed(hops.pop())
    while hops and address is not None and _is_trusted(address):
        if not (hop := hops.pop().strip()):
            break
        address = _parsed(hop)
    return address


def _parsed(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client on a socket that listens to both
    return mapped or address


def _is_trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)
