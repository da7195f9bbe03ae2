"""The tokenizer beside saved weights, as AutoTokenizer of transformers reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.prepared import is_prepared
from ..data.text import END_OF_TEXT, trained_tokenizer
from ..data.token_files import is_token_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_NAME = "tokenizer.json"
SETTINGS_NAME = "tokenizer_config.json"
SETTINGS_FILES = (
    SETTINGS_NAME,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""What stands beside a ``tokenizer.json`` and goes with it."""
VOCABULARIES = ("vocab.json", "vocab.txt", "tokenizer.model")
"""Vocabularies of tokenizers that have no ``tokenizer.json``."""
CHECKPOINT_FILES = (
    TOKENIZER_NAME,
    *SETTINGS_FILES,
    *VOCABULARIES,
    "merges.txt",
    "generation_config.json",
)
"""What stands beside weights and goes with them."""
GENERIC_CLASS = "PreTrainedTokenizerFast"
"""The class of transformers that reads any ``tokenizer.json``."""


class TokenizerFiles(NamedTuple):
    """Files to copy, and documents to write: JSON, or its text; both by name."""

    copied: Mapping[str, Path] = {}
    documents: Mapping[str, Mapping[str, Any] | str] = {}


def tokenizer_files(
    vocab: int,
    seq_len: int,
    data: Path | None,
    tokenizer: Path | None,
    source: Path | None,
    reads_text: bool = True,
) -> TokenizerFiles:
    """Files of the tokenizer that a run's text was read with.

    The user's ``tokenizer``, else that of the checkpoint ``source``, else the BPE that was trained
    on the text of ``data``. Token files, and a run that does not read text, have none.
    """
    if tokenizer is not None and (source is None or tokenizer.parent != source):
        is_usual = tokenizer.name == TOKENIZER_NAME
        beside = _present(tokenizer.parent, SETTINGS_FILES) if is_usual else {}
        return _with_settings({**beside, TOKENIZER_NAME: tokenizer}, seq_len)
    copied = {} if source is None else _present(source, CHECKPOINT_FILES)
    if TOKENIZER_NAME in copied:
        return _with_settings(copied, seq_len)
    has_own = any(name in copied for name in VOCABULARIES)
    if has_own or not reads_text or is_token_file(data) or is_prepared(data):
        return TokenizerFiles(copied)
    from tokenizers import Tokenizer

    text = trained_tokenizer(vocab, data)
    settings = _settings(Tokenizer.from_str(text), seq_len)
    return TokenizerFiles(copied, {TOKENIZER_NAME: text, SETTINGS_NAME: settings})


def _with_settings(copied: Mapping[str, Path], seq_len: int) -> TokenizerFiles:
    """Files with a ``tokenizer.json``, and the settings that it needs beside it."""
    if SETTINGS_NAME in copied:
        return TokenizerFiles(copied)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(copied[TOKENIZER_NAME]))
    return TokenizerFiles(copied, {SETTINGS_NAME: _settings(tokenizer, seq_len)})


def _present(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    return {name: path for name in names if (path := folder / name).is_file()}


def _settings(tokenizer: Tokenizer, seq_len: int) -> dict[str, Any]:
    """Settings of a bare tokenizer; its end of text where it has the usual one."""
    ends = {} if tokenizer.token_to_id(END_OF_TEXT) is None else {"eos_token": END_OF_TEXT}
    return {
        "tokenizer_class": GENERIC_CLASS,
        "model_max_length": seq_len,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **ends,
    }
