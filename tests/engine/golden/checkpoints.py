"""Late-interaction checkpoints of every layout, tiny and the same to the bit wherever they are built.

Weights come from integers alone and vocabularies are written out, so that golden values computed with other versions
of the libraries are values of these checkpoints: ``digest`` tells."""

from __future__ import annotations

import hashlib
import json
import string
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    Lfm2Config,
    Lfm2Model,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    XLMRobertaConfig,
    XLMRobertaModel,
)

QUERIES = ("the river rose", "what is honey, and is it (really) sweet?", "bees")
DOCUMENTS = (
    "The river rose after rain, and the bridge was closed.",
    "bees",
    "Honey is made by bees; they dry it in the hive until it is thick and sweet, as the keeper of the bees knows.",
    "!?",
)
_WORDS = (
    "the", "river", "rose", "after", "rain", "and", "bridge", "was", "closed", "what", "is", "honey", "it", "really",
    "sweet", "bees", "made", "by", "they", "dry",
)  # fmt: skip
_LETTERS = string.ascii_lowercase
_HIDDEN: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_MARKERS = ("[Q] ", "[D] ")


def _wordpiece() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *string.punctuation, *_LETTERS, *(f"##{c}" for c in _LETTERS), *_WORDS]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _finished(tokenizer, ("[CLS]",), ("[SEP]",), {**names, "mask_token": "[MASK]"})


def _byte_level(special: dict[str, str], before: tuple[str, ...], after: tuple[str, ...]) -> PreTrainedTokenizerFast:
    merges: dict[tuple[str, str], None] = {}
    for word in _WORDS:
        for end in range(1, len(word)):
            merges[word[:end], word[end]] = None
        merges["Ġ", word] = None
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*dict.fromkeys(special.values()), *alphabet, *(first + second for first, second in merges)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finished(tokenizer, before, after, special)


def _unigram() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = [(piece, 0.0) for piece in special] + [("▁", -4.0)]
    pieces += [(f"▁{word}", -5.0 - i / 16) for i, word in enumerate(_WORDS)]
    pieces += [(c, -8.0 - i / 16) for i, c in enumerate(_LETTERS + string.punctuation)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    return _finished(tokenizer, ("<s>",), ("</s>",), {**names, "unk_token": "<unk>", "mask_token": "<mask>"})


def _finished(
    tokenizer: Tokenizer, before: tuple[str, ...], after: tuple[str, ...], special: dict[str, str]
) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join((*before, "$A", *after)),
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((*before, *after))],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _modernbert_tokenizer() -> PreTrainedTokenizerFast:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _byte_level({**special, "mask_token": "[MASK]"}, ("[CLS]",), ("[SEP]",))


def _decoder_tokenizer() -> PreTrainedTokenizerFast:
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    return _byte_level(special, ("<|startoftext|>",), ())


def _bert(vocabulary: int) -> PreTrainedModel:
    return BertModel(BertConfig(vocab_size=vocabulary, max_position_embeddings=48, **_HIDDEN))


def _mpnet(vocabulary: int) -> PreTrainedModel:
    return MPNetModel(MPNetConfig(vocab_size=vocabulary, max_position_embeddings=50, pad_token_id=0, **_HIDDEN))


def _xlm_roberta(vocabulary: int) -> PreTrainedModel:
    return XLMRobertaModel(
        XLMRobertaConfig(vocab_size=vocabulary, max_position_embeddings=50, pad_token_id=1, **_HIDDEN)
    )


def _modernbert(vocabulary: int) -> PreTrainedModel:
    layers = ["full_attention", "sliding_attention"]
    config = ModernBertConfig(
        vocab_size=vocabulary, max_position_embeddings=48, local_attention=24, layer_types=layers, pad_token_id=0,
        bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, **_HIDDEN,
    )  # fmt: skip
    return ModernBertModel(config)


def _qwen3(vocabulary: int) -> PreTrainedModel:
    config = Qwen3Config(
        vocab_size=vocabulary, max_position_embeddings=48, num_key_value_heads=1, head_dim=8, **_HIDDEN
    )
    return Qwen3Model(config)


def _lfm2(vocabulary: int) -> PreTrainedModel:
    config = Lfm2Config(
        vocab_size=vocabulary, max_position_embeddings=48, num_key_value_heads=1, block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention"], **_HIDDEN,
    )  # fmt: skip
    return Lfm2Model(config)


Maker = tuple[Callable[[int], PreTrainedModel], Callable[[], PreTrainedTokenizerFast]]
BERT: Maker = (_bert, _wordpiece)
# A layout is its body and tokenizer, PyLate's settings (None: Stanford's folder), and the shape of each Dense module.
LAYOUTS: dict[str, tuple[Maker, dict[str, Any] | None, list[dict[str, Any]]]] = {
    "stanford-bert": (BERT, None, []),
    "pylate-bert": (BERT, {"attend_to_expansion_tokens": True}, [{"out_features": 6}]),
    "pylate-bert-unattended": (BERT, {"skiplist_words": []}, [{"out_features": 6}]),
    "pylate-bert-unexpanded": (
        BERT,
        {
            "do_query_expansion": False,
            "query_prefix": "",
            "document_prefix": "",
            "prompts": {"query": "what is ", "document": "honey: "},
        },
        [{"out_features": 6, "bias": True}],
    ),
    "pylate-modernbert": (
        (_modernbert, _modernbert_tokenizer),
        {},
        [
            {"out_features": 12, "activation_function": "torch.nn.modules.activation.GELU", "use_residual": True},
            {"out_features": 12, "bias": True, "use_residual": True},
            {"out_features": 6},
        ],
    ),
    "pylate-xlm-roberta": ((_xlm_roberta, _unigram), {}, [{"out_features": 6}]),
    "pylate-mpnet": ((_mpnet, _wordpiece), {}, [{"out_features": 6}]),
    "pylate-qwen3": ((_qwen3, _decoder_tokenizer), {}, [{"out_features": 6}]),
    "pylate-lfm2": ((_lfm2, _decoder_tokenizer), {}, [{"out_features": 6}]),
}


def build(layout: str, folder: Path) -> Path:
    """Write the folder as it comes from the hub."""
    (make_model, make_tokenizer), settings, dense = LAYOUTS[layout]
    tokenizer = make_tokenizer()
    if settings is not None:
        tokenizer.add_tokens([AddedToken(marker, normalized=True) for marker in _MARKERS])
    model = make_model(len(tokenizer))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(_numbers(name, tuple(parameter.shape))))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if settings is None:
        _stanford(folder)
    else:
        _pylate(folder, settings, dense)
    return folder


def digest(folder: Path) -> str:
    """Over the names, shapes and values of all weights."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        for name, tensor in sorted(load_file(path).items()):
            found.update(f"{path.relative_to(folder).as_posix()} {name} {tuple(tensor.shape)}".encode())
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def _numbers(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Spread wide, so that tokens that see each other differ visibly; norms near one. No rounding anywhere."""
    drawn = np.random.default_rng(zlib.crc32(name.encode())).integers(-512, 512, size=shape)
    centre = 1024 if len(shape) == 1 and name.endswith("weight") else 0
    numbers: npt.NDArray[np.float32] = ((drawn if len(shape) > 1 else drawn // 2 + centre) / 1024).astype(np.float32)
    return numbers


def _stanford(folder: Path) -> None:
    weights = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = torch.from_numpy(_numbers("linear.weight", (6, _HIDDEN["hidden_size"])))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    metadata = {
        "query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 12, "doc_maxlen": 20, "dim": 6,
        "mask_punctuation": True, "attend_to_mask_tokens": False, "similarity": "cosine",
    }  # fmt: skip
    (folder / "artifact.metadata").write_text(json.dumps(metadata))


def _pylate(folder: Path, settings: dict[str, Any], dense: list[dict[str, Any]]) -> None:
    chain = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    width = _HIDDEN["hidden_size"]
    for place, shape in enumerate(dense, start=1):
        module = folder / f"{place}_Dense"
        module.mkdir()
        activation = "torch.nn.modules.linear.Identity"
        config = {
            "in_features": width, "bias": False, "activation_function": activation, "use_residual": False, **shape
        }  # fmt: skip
        (module / "config.json").write_text(json.dumps(config))
        out = shape["out_features"]
        weights: dict[str, tuple[int, ...]] = {"linear.weight": (out, width)}
        if config["bias"]:
            weights["linear.bias"] = (out,)
        if config["use_residual"] and out != width:
            weights["residual.weight"] = (out, width)
        save_file(
            {name: torch.from_numpy(_numbers(f"{place}.{name}", size)) for name, size in weights.items()},
            module / "model.safetensors",
        )
        chain.append({"idx": place, "name": str(place), "path": module.name, "type": "pylate.models.Dense.Dense"})
        width = out
    (folder / "modules.json").write_text(json.dumps(chain))
    # What PyLate leaves behind of the last text it tokenised: no limit of the model's.
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 11, "do_lower_case": false}')
    own: dict[str, Any] = {
        "model_type": "ColBERT", "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 12, "document_length": 20,
        "attend_to_expansion_tokens": False, "do_query_expansion": True, "skiplist_words": list(string.punctuation),
    }  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**own, **settings}))
