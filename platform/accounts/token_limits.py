"""What a token is limited to: checked forms of it, and the rule that nobody hands out more than they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from django.utils import timezone

from accounts.limits import Quota
from accounts.models import ApiToken
from accounts.scopes import ALL_SCOPES
from assay.api.principal import Principal
from assay.client_address import Address
from assay.errors import AssayError
from assay.token_form import tokens_hidden

MOST_ENTRIES: Final = 100
MAX_NAME: Final = 100
MOST_OF_A_QUOTA: Final = 2**31 - 1
MODEL_NAME: Final = re.compile(r"[-\w]{1,64}")
Network = IPv4Network | IPv6Network


def checked_limits(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a token as they are stored. Raises AssayError 422 for what cannot be."""
    return {field: CHECKS[field](value) for field, value in given.items()}


def own_rights_check(principal: Principal, given: dict[str, Any]) -> None:
    """Raises AssayError 403 ``exceeds_own_rights`` if a checked field would give more than ``principal`` has."""
    if excess := sorted(set(given.get("scopes", ())) - principal.scopes):
        _refuse_excess(principal, "scopes", excess, sorted(principal.scopes))
    own = principal.token
    if own is None:
        return
    if own.allowed_models and "allowed_models" in given:
        models = given["allowed_models"]
        if excess := sorted(set(models) - set(own.allowed_models)) or ([] if models else ["all models"]):
            _refuse_excess(principal, "allowed_models", excess, own.allowed_models)
    if own.allowed_networks and "allowed_networks" in given:
        networks = given["allowed_networks"]
        excess = [network for network in networks if not _is_inside(network, own.allowed_networks)]
        if excess := excess or ([] if networks else ["every network"]):
            _refuse_excess(principal, "allowed_networks", excess, own.allowed_networks)
    for quota in Quota:
        limit, asked = getattr(own, quota), given.get(quota)
        if limit is not None and quota in given and (asked is None or asked > limit):
            _refuse_excess(principal, quota, ["no limit" if asked is None else f"{asked:,}"], [f"{limit:,}"])
    if own.expires_at and "expires_at" in given:
        until = given["expires_at"]
        if until is None or until > own.expires_at:
            asked = until.isoformat() if until else "no expiry"
            _refuse_excess(principal, "expires_at", [asked], [f"until {own.expires_at.isoformat()}"])


def is_admitted(token: ApiToken, address: Address | None) -> bool:
    """Whether the token may be used from ``address`` (None: unknown)."""
    if not token.allowed_networks:
        return True
    return address is not None and any(address in ip_network(network) for network in token.allowed_networks)


def _checked_name(name: str) -> str:
    if not name.strip() or len(name.strip()) > MAX_NAME:
        message = f"The name has {len(name.strip())} characters; say in 1 to {MAX_NAME} what the token is for."
        raise _invalid("bad_name", message, "name")
    return tokens_hidden(name.strip())


def _checked_scopes(scopes: Collection[str]) -> list[str]:
    if not scopes or not set(scopes) <= ALL_SCOPES:
        given, known = ", ".join(sorted(scopes)) or "none", ", ".join(sorted(ALL_SCOPES))
        raise _invalid("unknown_scope", f"A token needs scopes out of {known}; given: {given}.", "scopes")
    return sorted(set(scopes))


def _checked_models(names: Collection[str]) -> list[str]:
    for name in names:
        if not MODEL_NAME.fullmatch(name):
            message = f"'{name[:80]}' cannot be the name of a model; give names of registered ones, or none for all."
            raise _invalid("bad_model_name", message, "allowed_models")
    return _bounded(sorted(set(names)), "allowed_models")


def _checked_networks(networks: Sequence[str]) -> list[str]:
    found: set[Network] = set()
    for network in networks:
        try:
            found.add(ip_network(network.strip()))
        except ValueError as error:
            message = f"'{network[:80]}' is no network ({error}); give such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32."
            raise _invalid("bad_network", message, "allowed_networks") from error
    ordered = sorted(found, key=lambda network: (network.version, int(network.network_address), network.prefixlen))
    return _bounded([str(network) for network in ordered], "allowed_networks")


def _checked_expiry(expires_at: datetime | None) -> datetime | None:
    if expires_at is not None and expires_at <= timezone.now():
        message = f"expires_at is {expires_at:%Y-%m-%d %H:%M:%S} UTC, which is past; give a later one, or null."
        raise _invalid("bad_expiry", message, "expires_at")
    return expires_at


def _checked_quota(quota: Quota) -> Callable[[int | None], int | None]:
    def check(limit: int | None) -> int | None:
        if limit is not None and not quota.least <= limit <= MOST_OF_A_QUOTA:
            instead = " To keep a token from scoring, leave out its scope 'score'." if limit == 0 else ""
            message = f"{quota} is {limit:,}; give {quota.least} to {MOST_OF_A_QUOTA:,}, or null for no limit.{instead}"
            raise _invalid("bad_quota", message, quota)
        return limit

    return check


CHECKS: Final[dict[str, Any]] = {
    "name": _checked_name,
    "scopes": _checked_scopes,
    "allowed_models": _checked_models,
    "allowed_networks": _checked_networks,
    "expires_at": _checked_expiry,
    **{quota.value: _checked_quota(quota) for quota in Quota},
}


LIMITS: Final = tuple(field for field in CHECKS if field != "name")  # what a token may


def _bounded(entries: list[str], param: str) -> list[str]:
    if len(entries) > MOST_ENTRIES:
        raise _invalid("too_many_entries", f"{param} has {len(entries):,} entries; give at most {MOST_ENTRIES}.", param)
    return entries


def _is_inside(network: str, own: Sequence[str]) -> bool:
    inner = ip_network(network)
    for text in own:
        outer = ip_network(text)
        if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network) and inner.subnet_of(outer):
            return True
        if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network) and inner.subnet_of(outer):
            return True
    return False


def _refuse_excess(principal: Principal, param: str, excess: Sequence[str], own: Sequence[str]) -> None:
    raise AssayError(
        "exceeds_own_rights",
        f"Nobody gives a token more than they have: {param} asks for {', '.join(excess)}, and {principal.label} has: "
        f"{', '.join(own) or 'none'}.",
        status=403,
        param=param,
    )


def _invalid(code: str, message: str, param: str) -> AssayError:
    return AssayError(code, message, status=422, param=param)
