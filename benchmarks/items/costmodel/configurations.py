"""Every family of transformers: read with the class's parameters, or refused with what it has."""

from __future__ import annotations

from typing import Any

from harness.shapes import SPEC, Evidence, Item, Table, judged
from harness.work import Work
from hf.hf_classes import ROWS, class_parameters, configuration, counted, default_document

from shardwright.spec.errors import ShardwrightError
from shardwright.spec.huggingface.config import MODEL_TYPES, model_from_config
from shardwright.spec.huggingface.unread.types import TRANSFORMERS_TYPES

LEAST_FAMILIES = 45


def run(work: Work) -> Evidence:
    """Read default configurations; count published and small ones beside their classes."""
    names = sorted(TRANSFORMERS_TYPES)
    names = names[: work.sized(len(names), 20)]
    rows = [row["name"] for row in ROWS][: work.sized(len(ROWS), 6)]
    read = dict(zip(names, work.pieces([f"default {x}" for x in names], _read), strict=True))
    counts = dict(zip(rows, work.pieces([f"count {x}" for x in rows], _count), strict=True))
    crashed = [name for name, piece in read.items() if piece["outcome"] == "crashed"]
    unnamed = [n for n, piece in read.items() if piece["outcome"] == "refused" and not piece["has"]]
    apart = [name for name, piece in counts.items() if piece["ours"] != piece["library"]]
    families = {piece["family"] for name, piece in counts.items() if name not in apart}
    found = [
        judged(
            "default configurations that end in anything but a model or one line",
            f"{len(crashed)} of {len(read)}" + (f" ({', '.join(crashed)})" if crashed else ""),
            "0",
            not crashed,
            configurations=len(read),
        ),
        judged(
            "refusals that do not say what the family has",
            f"{len(unnamed)}" + (f" ({', '.join(unnamed)})" if unnamed else ""),
            "0",
            not unnamed,
        ),
        judged(
            "configurations whose parameters differ from the class's",
            f"{len(apart)} of {len(counts)}" + (f" ({', '.join(apart)})" if apart else ""),
            "0",
            not apart,
            counted=len(counts),
        ),
        judged(
            "families with equal counts",
            f"{len(families)}",
            f"at least {LEAST_FAMILIES}",
            len(families) >= work.sized(LEAST_FAMILIES, 1),
            families=len(families),
        ),
    ]
    return Evidence(rows=found, tables=[_families(read)])


def _read(key: str) -> dict[str, Any]:
    name = key.removeprefix("default ")
    try:
        model, _ = model_from_config(default_document(name), name, "config.json")
    except ShardwrightError as error:
        text = str(error)
        own = text.removeprefix(f"config.json: model_type {name} (")
        has = own != text or name in MODEL_TYPES  # a default that makes no model names its key
        return {"outcome": "refused", "has": has and "\n" not in text, "words": own}
    except Exception as error:
        return {"outcome": "crashed", "has": False, "words": repr(error)}
    return {"outcome": "read", "has": True, "words": f"{counted(model):,} parameters"}


def _count(key: str) -> dict[str, Any]:
    row = next(row for row in ROWS if row["name"] == key.removeprefix("count "))
    model, _ = model_from_config(row["config"], row["name"], "config.json")
    family = row["config"]["model_type"]
    library = class_parameters(configuration(row["config"]), family)
    return {"family": family, "ours": counted(model), "library": library}


def _families(read: dict[str, dict[str, Any]]) -> Table:
    rows = [[name, piece["outcome"], piece["words"]] for name, piece in read.items()]
    return Table(title="Families", columns=["family", "outcome", "what"], rows=rows)


ITEM = Item(
    name="configurations",
    shows="Families of transformers 5.23.0 are read, or refused with what they have.",
    target="No crash, no refusal without a reason, counts equal in 45 families.",
    run=run,
    reads=(
        *SPEC,
        "tests/support/hf/hf_classes.py",
        "tests/datasets/fixtures/model_configs.json",
    ),
)
