"""Documents encoded before anybody asks for their scores: what is to be done, and what was."""

from __future__ import annotations

from workers.engine.caches.cached_encoding import CacheKey
from workers.engine.outputs import is_blank, refuse_too_long, timings_of
from workers.engine.sequence import EncodingResults, Sequence, Work
from workers.engine.types import EncodingOutput, EncodingRequest


def distinct_documents(request: EncodingRequest) -> list[str]:
    return list(dict.fromkeys(text for text in request.documents if not is_blank(text)))


def await_new_ones(work: Work, sequences: list[Sequence]) -> None:
    """Put what no cache knows into the queue; it goes into the cache as it is encoded."""
    request = work.encoding
    refuse_too_long(
        request.options.truncation, "distinct documents", {s.index: s.truncated for s in sequences if s.truncated}
    )
    work.pending.extend(sequence for sequence in sequences if sequence.encoding is None)
    work.results = EncodingResults(
        encoded=len(work.pending),
        cached=len(sequences) - len(work.pending),
        empty=len(set(request.documents)) - len(sequences),
        tokens=sum(sequence.tokens for sequence in sequences),
        sequences=sequences,
    )


def assemble_encoding(work: Work, key: CacheKey) -> EncodingOutput:
    done: EncodingResults = work.results
    size = sum(sequence.encoding.bytes for sequence in done.sequences if sequence.encoding is not None)
    return EncodingOutput(done.encoded, done.cached, done.empty, done.tokens, size, key, timings_of(work))
