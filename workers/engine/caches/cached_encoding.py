"""What the tiers of the embedding cache hold, and under which name.

A key names the content, never a document's id: the same text in two sets is one entry, an edited text is another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.role import Role

Owner = tuple[str, str]


class CacheKey(NamedTuple):
    """A tuple, because a thousand of them are made, hashed and compared for one request."""

    identity: str  # of all that decides the vectors beside what follows: models of one encoder share what they encode
    device: str  # whose arithmetic they are of; the disk does not ask
    role: Role
    parts: frozenset[Part]
    limit: int  # tokens of the text that were let in
    digest: bytes

    @property
    def owner(self) -> Owner:
        return self[:2]


@dataclass(frozen=True, slots=True)
class CachedEncoding:
    encoding: Encoding
    tokens: int
    truncated: int

    @property
    def bytes(self) -> int:
        return self.encoding.bytes

    def to(self, device: torch.device) -> CachedEncoding:
        return replace(self, encoding=self.encoding.to(device))


def owner_of(identity: str, device: str) -> Owner:
    """Whose entries are forgotten, and bounded, together: one encoder's, whatever its models are called."""
    return identity, device


def content_digest(text: str, instruction: str) -> bytes:
    return hashlib.blake2b(f"{instruction}\0{text}".encode(), digest_size=16).digest()


def packed_key(key: CacheKey, name: str) -> CacheKey:
    """Of a list of documents that is kept as a whole."""
    return key._replace(digest=content_digest(name, "packed"))
