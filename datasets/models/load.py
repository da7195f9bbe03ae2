"""Models by name or by file.

Presets, ``config.json``, typed keys, the local hub cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...spec.codec import from_document, read_text
from ...spec.errors import InputError, nearest_name
from ...spec.huggingface.config import ModelAndAssumptions, model_from_config
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.rules.input_rules import model_problems
from ..catalogue.tables import DOCUMENT_SUFFIXES, read_table
from .typed_model import model_from_keys

DEFAULT_MODEL = "shardwright-demo"
MAX_TEXT = 1000
MAX_REVISION_BYTES = 4096
CONFIG_NAME = "config.json"
CONFIG_KEYS = ("model_type", "hidden_size", "num_hidden_layers", "architectures")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
PRESET_NOTES = ("source", "left_out", "simplified")
FORMS = "a preset, a folder with config.json, a config.json, a typed YAML or JSON file, a hub name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A bundled model and the source of its sizes.

    ``left_out`` lists parts that are neither priced nor run, ``simplified`` those priced in a
    simpler form.
    """

    name: str
    model: ModelSpec
    source: str
    left_out: tuple[str, ...]
    simplified: tuple[str, ...] = ()


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by name, in catalogue order."""
    table = {}
    for name, row in read_table("presets").items():
        if "same_as" not in row:
            table[name] = Preset(
                name=name,
                model=_preset_model(name, row),
                source=row["source"],
                left_out=tuple(row.get("left_out", ())),
                simplified=tuple(row.get("simplified", ())),
            )
    for name, row in read_table("presets").items():
        if "same_as" in row:
            original = table[row["same_as"]]
            table[name] = replace(original, name=name, source=f"{original.name}: {original.source}")
    return table


def _preset_model(name: str, row: Mapping[str, Any]) -> ModelSpec:
    where = f"preset {name}"
    if "config" in row:
        return model_from_config(row["config"], name, where)[0]
    keys = {key: value for key, value in row.items() if key not in PRESET_NOTES}
    return model_from_keys(keys, name, where)[0]


def load_model(text: str, where: str = "--model") -> ModelAndAssumptions:
    """The model that ``text`` names, and the assumptions made.

    Args:
        text: a preset (upper and lower case alike), a folder or file, or a hub name whose
            ``config.json`` is in the local cache. Nothing is downloaded.
        where: name of the value in an error.

    Raises:
        InputError: nothing of that name, or a document that describes no usable model.
        NotBuiltError: a model that is known but not served yet.
    """
    name = text.strip()
    if not name or not name.isprintable() or len(name) > MAX_TEXT:
        raise InputError(where, text, FORMS, DEFAULT_MODEL)
    preset = {key.casefold(): item for key, item in presets().items()}.get(name.casefold())
    if preset is not None:
        return preset.model, _left_out(preset)
    path = Path(name).expanduser()
    if _exists(path) or path.suffix in DOCUMENT_SUFFIXES or name.startswith((".", "/", "~")):
        return _from_path(path)
    if HUB_NAME.fullmatch(name):
        return _from_hub(name, where)
    near = nearest_name(name, presets())
    allowed = FORMS + "; presets: " + ", ".join(presets())
    raise InputError(where, name, allowed, near)


def _left_out(preset: Preset) -> tuple[Assumption, ...]:
    why = f"of the model's source ({preset.source})"
    parts = [(item, f"{why}, neither priced nor run") for item in preset.left_out]
    parts += [(item, f"{why}, simplified") for item in preset.simplified]
    return tuple(Assumption(path="model", value=item, why=text) for item, text in parts)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system
        return False


def _from_path(path: Path) -> ModelAndAssumptions:
    from ..catalogue.documents import (
        read_document,  # imports the YAML library, which presets do not need
    )

    if _exists(path) and path.is_dir():
        config = path / CONFIG_NAME
        if not config.is_file():
            raise InputError(str(path), f"a folder without {CONFIG_NAME}", FORMS)
        return model_from_config(
            read_document(config, CONFIG_NAME), path.resolve().name or "model", str(config)
        )
    document = read_document(path, "a model file")
    where = str(path)
    if "towers" in document:
        return checked_model(from_document(ModelSpec, document, where), where), ()
    if path.name == CONFIG_NAME or any(key in document for key in CONFIG_KEYS):
        name = path.resolve().parent.name if path.name == CONFIG_NAME else path.stem
        return model_from_config(document, name or "model", where)
    return model_from_keys(document, path.stem, where)


def checked_model(model: ModelSpec, where: str) -> ModelSpec:
    """Return a spelled-out model if it can be planned.

    Raises:
        InputError: the first broken rule.
    """
    for problem in model_problems(model):
        raise problem.error(where)
    return model


def _from_hub(name: str, where: str) -> ModelAndAssumptions:
    from ..catalogue.documents import read_document

    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    for snapshot in _snapshots(folder):
        if (snapshot / CONFIG_NAME).is_file():
            config = snapshot / CONFIG_NAME
            title = name.rsplit("/", 1)[-1]
            return model_from_config(read_document(config, CONFIG_NAME), title, str(config))
    url = f"https://huggingface.co/{name}/resolve/main/{CONFIG_NAME}"
    allowed = f"a model in {hub_cache()}; download {url} and give its path"
    raise InputError(where, name, allowed, nearest_name(name.rsplit("/", 1)[-1], presets()))


def hub_cache() -> Path:
    """Download folder of the hub's tools, by their environment variables."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _snapshots(folder: Path) -> list[Path]:
    """Snapshot folders of a cached model.

    That of ``main`` first, then by name.
    """
    try:
        folders = sorted(path for path in (folder / "snapshots").iterdir() if path.is_dir())
        main = read_text(folder / "refs" / "main", "a revision", MAX_REVISION_BYTES).strip()
    except (OSError, InputError):
        main = ""
        folders = sorted((folder / "snapshots").glob("*/"))
    return sorted(folders, key=lambda path: (path.name != main, path.name))
