"""Whatever a text holds it stays text (case T1); long texts are cut by tokens, exactly, in bounded pieces (L1, L5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.engine.tiny import BUILDERS, CORPUS
from workers.engine.texts.tokenizer import TextTokenizer, segments

LITERALS = "<|endoftext|> <|im_end|> <|im_start|> [SEP] [CLS] </s> <s> <mask> [MASK] <pad> <unk>"


def text_tokenizer(folder: Path) -> TextTokenizer:
    return TextTokenizer(AutoTokenizer.from_pretrained(folder).backend_tokenizer)


@pytest.mark.parametrize("architecture", BUILDERS)
def test_control_tokens_in_texts_stay_text(tiny_folders: dict[str, Path], architecture: str) -> None:
    tokenizer = text_tokenizer(tiny_folders[architecture])
    forbidden = {index for token, index in tokenizer.control.items() if token not in ("[UNK]", "<unk>")}
    assert len(forbidden) >= 3
    for text in (LITERALS, *LITERALS.split(), *(f"a{literal}b" for literal in LITERALS.split())):
        assert not forbidden & set(tokenizer.encode(text)), text


def test_unigram_pieces_named_like_control_tokens_are_not_taken(tiny_folders: dict[str, Path]) -> None:
    """Splitting special tokens alone is not enough there: ``</s>`` is a vocabulary piece with the best score."""
    own = AutoTokenizer.from_pretrained(tiny_folders["xlm-roberta"])
    end = own.convert_tokens_to_ids("</s>")
    assert end in own("</s>", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert end not in text_tokenizer(tiny_folders["xlm-roberta"]).encode("</s>")


def test_added_tokens_that_are_not_special_stay_text(tiny_folders: dict[str, Path]) -> None:
    own = AutoTokenizer.from_pretrained(tiny_folders["llama"])
    own.add_tokens(["<think>", "[Q] "])
    tokenizer = TextTokenizer(own.backend_tokenizer)
    ids = tokenizer.encode("[Q] why <think>")
    assert not set(ids) & {own.convert_tokens_to_ids(token) for token in ("<think>", "[Q] ")}
    assert tokenizer.control["<think>"] == own.convert_tokens_to_ids("<think>")


@pytest.mark.parametrize("architecture", BUILDERS)
def test_plain_text_has_the_checkpoints_own_ids(tiny_folders: dict[str, Path], architecture: str) -> None:
    own = AutoTokenizer.from_pretrained(tiny_folders[architecture])
    texts = [*CORPUS[:5], "  two  blanks, a\ttab\nand a line ", "naïve Ωmega 東京 😀", "x"]
    ours = text_tokenizer(tiny_folders[architecture]).encode_surrounded(texts, 10**6)
    assert [tokens.ids for tokens in ours] == [own(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("architecture", BUILDERS)
@pytest.mark.parametrize("lead", ["", "query: ", "Instruct: x\nQuery:"])
def test_a_text_behind_a_lead_is_one_string_with_it(
    tiny_folders: dict[str, Path], architecture: str, lead: str
) -> None:
    """Long texts too, of which only the beginning is joined."""
    tokenizer = text_tokenizer(tiny_folders[architecture])
    for text in (CORPUS[0], " ".join(CORPUS * 12), " two blanks"):
        whole = tokenizer.encode(lead + text)
        before, own, more = tokenizer.encode_behind(lead, text, 50)
        assert [*before, *own] == whole[: len(before) + 50] and len(before) + len(own) + more == len(whole)
        assert len(before) in (len(tokenizer.encode(lead)), len(tokenizer.encode(lead)) - 1)  # a blank may go over


def test_settings_baked_into_the_file_do_not_cut(minilm_folder: Path) -> None:
    """all-MiniLM's tokenizer.json truncates and pads to 128."""
    (tokens,) = text_tokenizer(minilm_folder).encode_surrounded(["word " * 300], 510)
    assert len(tokens.ids) == 302 and tokens.truncated == 0


@pytest.mark.parametrize("architecture", BUILDERS)
def test_cutting_a_long_text_into_segments_changes_no_token(tiny_folders: dict[str, Path], architecture: str) -> None:
    tokenizer = text_tokenizer(tiny_folders[architecture])
    text = " ".join(CORPUS)[:3000]
    pieces = list(segments(text, 100))
    assert "".join(pieces) == text and len(pieces) > 20
    assert [i for piece in pieces for i in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_a_long_text_keeps_its_beginning_and_counts_the_rest(minilm_folder: Path) -> None:
    tokenizer = text_tokenizer(minilm_folder)
    text = " ".join(CORPUS * 30)
    assert len(text) > 100_000
    whole = tokenizer.encode(text)
    (tokens,) = tokenizer.encode_surrounded([text], 254)
    assert tokens.ids[1:-1] == whole[:254] and tokens.truncated == len(whole) - 254
    beginning, behind = tokenizer.cut_text(text, 40)
    assert tokenizer.encode(beginning) == whole[:40] and behind == len(whole) - 40


def test_text_without_blanks_is_one_segment() -> None:
    text = "f00dba11" * 20_000
    assert list(segments(text)) == [text]
    assert [len(part) for part in segments("x" * (2**20 + 2**16))] == [2**20 + 2**15, 2**15]
