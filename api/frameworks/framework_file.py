"""FrameworkFile: a configuration of any form as flat keys.

Nothing in it is run: a Python configuration is refused, and a command line is only split into
words.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...datasets.catalogue.documents import MAX_BYTES, parse_yaml
from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError

WHAT = "a framework's configuration"
FORMS = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".py": "python"}
PYTHON_ALLOWED = (
    "what the framework dumps of it, for Python is not run: torchtitan's command-line overrides "
    "(--parallelism.tensor_parallel_degree 8 …) or Megatron Bridge's saved run_config.yaml"
)
VARIABLE = re.compile(r"\$\{?\w+")
WHOLE = re.compile(r"[-+]?\d{1,18}")
DECIMAL = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d{1,3})?")
WORDS = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFile:
    """Flat keys of a file; ``form`` is json, toml, yaml or arguments.

    ``alone``: its text was sent, so that no file that it names may be opened.
    """

    path: str
    form: str
    keys: Mapping[str, Any]
    alone: bool = False

    def folder_file(self, name: str) -> Path:
        """A file that this one names, beside it.

        Raises:
            InputError: this one stands alone.
        """
        if self.alone:
            allowed = "all keys in one file: those that it names are not opened here"
            raise InputError(self.path, f"the name of another file, {name}", allowed)
        return Path(self.path).expanduser().parent / name


def read_framework_file(path: str) -> FrameworkFile:
    """Read a file of any form.

    Raises:
        InputError: missing, a folder, of no known form, or malformed.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        raise InputError(path, "a folder", WHAT)
    return framework_file(read_text(file, WHAT, MAX_BYTES), path)


def framework_file(text: str, path: str, alone: bool = False) -> FrameworkFile:
    """A file's text as flat keys.

    Args:
        text: of the file.
        path: names it and tells its form.
        alone: True if no file that it names may be opened.

    Raises:
        InputError: of no known form, or malformed.
    """
    form = FORMS.get(Path(path).suffix.casefold(), "arguments")
    if form == "python":
        raise InputError(path, "a Python configuration", PYTHON_ALLOWED)
    if not text.strip():
        raise InputError(path, "an empty file", WHAT)
    if form == "arguments":
        return FrameworkFile(path=path, form=form, keys=_arguments(text, path), alone=alone)
    document = _document(text, path, form)
    if not isinstance(document, dict):
        raise InputError(path, type(document).__name__, f"{WHAT}: keys and values at the top")
    return FrameworkFile(path=path, form=form, keys=dict(_flat(document)), alone=alone)


def _document(text: str, path: str, form: str) -> Any:
    if form == "json":
        return parse_json(text, path)
    if form == "yaml":
        return parse_yaml(text, path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, str(error), "TOML") from None


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str) and DECIMAL.fullmatch(value):  # 1e-6 is a text in YAML 1.2
            yield f"{prefix}{key}", float(value)
        else:
            yield f"{prefix}{key}", value


def _arguments(text: str, path: str) -> dict[str, Any]:
    """Flags of a command line; words before the first flag after a script are left out.

    Raises:
        InputError: no flags, an open quote, or a value that a shell would fill in.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InputError(path, str(error), "flags and values, as on a command line") from None
    scripts = [n for n, word in enumerate(words) if word.endswith(".py")]
    keys: dict[str, Any] = {}
    flag = ""
    for word in words[scripts[-1] + 1 if scripts else 0 :]:
        if re.fullmatch(r"--?[A-Za-z][\w.-]*(=.*)?", word, re.DOTALL):
            flag, given, value = word.lstrip("-").partition("=")
            keys[flag] = _scalar(value, flag, path) if given else True
        elif flag:
            kept, value = keys[flag], _scalar(word, flag, path)
            keys[flag] = value if kept is True else f"{kept} {word}"
    if not keys:
        raise InputError(path, "no flags", f"{WHAT}: YAML, TOML, JSON, or a command line's flags")
    return keys


def _scalar(word: str, flag: str, path: str) -> Any:
    if VARIABLE.search(word):
        raise InputError(f"{path}: --{flag}", word, "a value written out: no shell is run")
    if WHOLE.fullmatch(word):
        return int(word)
    if DECIMAL.fullmatch(word):
        return float(word)
    return WORDS.get(word.casefold(), word)
