"""The HTTP interface of the whole platform, by sections: python benchmarks/http SECTION… [--help]

Each run starts servers, web, reconciler and one worker of its own in a temporary folder, through the API alone, with a
token that has every quota. Give the collection's folder and the peers' environments where they are. The last line is
JSON. Read the figures on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from background import background
from house import House, house
from late import late
from overhead import overhead
from rank import rank
from rerank import CLIENTS, DOCUMENTS, rerank
from soak import soak
from texts import Texts, texts

PATIENT: Final = {"SYNC_TIMEOUT_MS": "600000", "SYNC_TIMEOUT_MAX_MS": "600000"}  # as the peers, which wait for ever
CROSS_ENCODER: Final = {"background", "rerank"}  # sections that need the model's folder


def _rerank(running: House, given: argparse.Namespace, sent: Texts) -> dict[str, Any]:
    peers = {"vllm": given.vllm, "infinity": given.infinity}
    sizes = {"documents": given.documents, "clients": given.clients}
    return rerank(running, given.model, sent, **peers, **sizes, seconds=given.seconds, rounds=given.rounds)


def _timed(section: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda running, given, sent: section(running, sent, seconds=given.seconds, rounds=given.rounds)


SECTIONS: Final[dict[str, Callable[[House, argparse.Namespace, Texts], dict[str, Any]]]] = {
    "overhead": lambda running, given, sent: overhead(running, seconds=given.seconds, rounds=given.rounds),
    "rerank": _rerank,
    "late": _timed(late),
    "rank": _timed(rank),
    "background": lambda running, given, sent: background(
        running, given.model, sent, seconds=given.seconds, rounds=given.rounds
    ),
    "soak": lambda running, given, sent: soak(running, sent, minutes=given.minutes),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="+", choices=SECTIONS)
    parser.add_argument("--collection", type=Path, help="folder with documents.jsonl and queries.jsonl; else words")
    parser.add_argument("--vllm", type=Path, help="virtual environment with vllm")
    parser.add_argument("--infinity", type=Path, help="virtual environment with infinity-emb")
    parser.add_argument("--model", type=Path, help="folder of a cross-encoder; else one with a random head is written")
    parser.add_argument("--documents", type=int, nargs="+", default=DOCUMENTS, help="of a request, for rerank")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="at once, for rerank")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak")
    given = parser.parse_args()
    sent, found = texts(given.collection), {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as name:
        if CROSS_ENCODER & set(given.section) and given.model is None:
            sys.path.append(str(Path(__file__).resolve().parents[1]))
            from cross_encoder import checkpoint

            given.model = Path(name) / "cross-encoder"
            checkpoint(given.model)
        # A house for each section: what one leaves in caches and memory is no part of another's figures.
        for section in given.section:
            models = given.model.parent if section in CROSS_ENCODER else None
            with house(models=models, **(PATIENT if section == "rerank" else {})) as running:
                found |= SECTIONS[section](running, given, sent)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
