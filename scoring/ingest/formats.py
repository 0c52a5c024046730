"""What a file is, told from its first bytes and never from its name alone."""

from __future__ import annotations

import codecs
from enum import StrEnum
from typing import BinaryIO, Final

from scoring.ingest.rows import FileProblem

SNIFF_BYTES: Final = 65_536
SIGNATURES: Final = {
    b"PK\x03\x04": "a ZIP archive (or an Excel file)",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "a PDF",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"PAR1": "a Parquet file",
    b"\xd0\xcf\x11\xe0": "an old Microsoft Office file",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
}
UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Format(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    TREC_QRELS = "trec-qrels"
    TREC_RUN = "trec-run"


TREC_NAMES: Final = {
    Format.TREC_QRELS: "TREC judgements (query, 0, document, grade)",
    Format.TREC_RUN: "a TREC run (query, Q0, document, rank, score, tag)",
}


def sniff(file: BinaryIO, *, trec: Format | None = None) -> Format:
    """The format of ``file``, which is rewound; ``trec`` is the TREC format that is expected, if one is.

    Raises FileProblem for what is not text, holds nothing, or is in the other TREC format.
    """
    file.seek(0)
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    if head.startswith(UTF16_MARKS):
        head = head.decode("utf-16", "ignore").encode("utf-8", "ignore")
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise FileProblem("The file is empty. Give a CSV, TSV or JSON-lines file with at least one row.")
    for signature, name in SIGNATURES.items():
        if head.startswith(signature):
            raise FileProblem(f"The file is {name}, not text. Give a CSV, TSV or JSON-lines file in UTF-8.")
    # Text has hardly any control characters; one stray NUL in a cell is a row's problem, not the file's.
    controls = sum(byte < 9 or 13 < byte < 32 for byte in head)
    if controls > max(8, len(head) // 20):
        raise FileProblem(
            f"The file is binary ({controls:,} control characters in its first {len(head):,} bytes). "
            "Give a CSV, TSV or JSON-lines file in UTF-8."
        )
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    first = lines[0]
    if first.lstrip().startswith(b"{"):
        return Format.JSONL
    if (found := _trec_format(first)) is not None:
        if found is not trec and (trec is not None or all(map(_trec_format, lines[:2]))):
            instead = TREC_NAMES[trec] if trec is not None else "a CSV, TSV or JSON-lines file"
            raise FileProblem(f"The file is {TREC_NAMES[found]}; give {instead}, or upload it as what it is.")
        return found if trec is not None else _delimited(first)
    return _delimited(first)


def text_encoding(file: BinaryIO) -> str:
    """UTF-16 if ``file``, which is rewound, begins with its mark; else UTF-8."""
    file.seek(0)
    mark = file.read(2)
    file.seek(0)
    return "utf-16" if mark in UTF16_MARKS else "utf-8-sig"


def _delimited(first: bytes) -> Format:
    return Format.TSV if first.count(b"\t") >= max(1, first.count(b","), first.count(b";")) else Format.CSV


def _trec_format(line: bytes) -> Format | None:
    fields = line.split()
    if len(fields) == 4 and fields[3].lstrip(b"-").isdigit():
        return Format.TREC_QRELS
    if len(fields) == 6 and (fields[1].upper() == b"Q0" or (fields[3].isdigit() and _is_number(fields[4]))):
        return Format.TREC_RUN
    return None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
