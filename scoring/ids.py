"""Public ids: UUIDv7, so that ids sort by creation time and reveal no count."""

from __future__ import annotations

import uuid

import uuid_utils.compat


def new_id() -> uuid.UUID:
    return uuid_utils.compat.uuid7()
