"""BM25 over a list of texts, as bm25s computes it.

Words are runs of two or more letters, digits or underscores in lower case, less English stop words; nothing is stemmed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np
import numpy.typing as npt

from scoring.ranking import Floats, Positions

POSTINGS: Final = "data.csc.index.npy"
NPY_HEADER: Final = 128
Progress = Callable[[], None]  # called now and then; what it raises ends the building


def build(texts: Iterable[str], folder: Path, parameters: Mapping[str, Any], progress: Progress) -> None:
    """Write the index of ``texts``, in the order of their positions, into ``folder``.

    Texts are read once, one after the other. What stays in memory is 4 bytes per word read, then about 40 bytes per
    different word of each document while bm25s sorts them.
    """
    tokenizer = bm25s.tokenization.Tokenizer(stopwords=parameters["stop_words"])
    lists = WordLists(tokenizer.streaming_tokenize(texts, allow_empty=False), progress)
    index = bm25s.BM25(method=parameters["variant"], k1=parameters["k1"], b=parameters["b"])
    vocabulary = tokenizer.get_vocab_dict()
    index.vocab_dict = vocabulary
    index.scores = index.build_index_from_ids(list(vocabulary.values()), lists, show_progress=False)
    index.save(folder, show_progress=False)


class WordLists:
    """The word ids of every document, one flat array: a list of lists takes ten times the memory."""

    def __init__(self, documents: Iterable[list[int]], progress: Progress) -> None:
        self._progress = progress
        self._ids, self._ends = array("i"), array("q")
        for ids in documents:
            self._ids.extend(ids)
            self._ends.append(len(self._ids))
            progress()

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._ids[start:end].tolist()
            start = end
            self._progress()


class Bm25Index:
    """One document set's index. Shapes: D documents of the set."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        postings = (folder / POSTINGS).stat().st_size > NPY_HEADER  # what is empty cannot be mapped
        self._index = bm25s.BM25.load(folder, mmap=postings, show_progress=False)
        self._stop_words = parameters["stop_words"]

    def search(self, query: str, *, top_k: int) -> tuple[Positions, Floats]:
        """Positions and scores of the best documents that share a word with the query; ties by position."""
        (words,) = bm25s.tokenize([query], stopwords=self._stop_words, return_ids=False, show_progress=False)
        known = self._index.get_tokens_ids(words)
        if not known:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        scores = self._index.get_scores_from_ids(known)  # [D]
        best = _best(scores, top_k)
        return best.astype(np.int32), scores[best].astype(np.float32)


def _best(scores: Floats, top_k: int) -> npt.NDArray[np.intp]:
    """Indices of the ``top_k`` highest scores above 0, best first, ties by index: bm25s leaves ties to chance."""
    found = np.flatnonzero(scores > 0)
    own = scores[found]
    if len(found) > top_k:
        least = np.partition(own, -top_k)[-top_k]
        above, ties = found[own > least], found[own == least]
        found = np.concatenate([above, ties[: top_k - len(above)]])
        own = scores[found]
    return found[np.lexsort((found, -own))]
