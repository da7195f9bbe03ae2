"""A corpus that every machine has: Python's library, vendored copies of packages, licence files."""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Records = list[dict[str, Any]]
LICENCES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")


def _package(name: str) -> Path:
    """Folder of an installed package, which is not imported."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(name)
    return Path(spec.submodule_search_locations[0])


def _files(folder: Path, pattern: str, skipped: tuple[str, ...] = ()) -> Iterator[Path]:
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and not set(skipped) & set(path.relative_to(folder).parts):
            yield path


def _records(source: str, domain: str, root: Path, paths: Iterator[Path]) -> Records:
    found = []
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.strip():
            name = path.relative_to(root).as_posix()
            found.append({"id": name, "text": text, "source": source, "domain": domain})
    return found


def corpus() -> dict[str, Records]:
    """Records by source: library, pip, setuptools, installed, licences."""
    library = Path(sysconfig.get_path("stdlib"))
    site = Path(sysconfig.get_path("purelib"))
    tools = {name: _package(name) for name in ("pip", "setuptools")}
    vendored = {path.name for tool in tools.values() for path in tool.glob("_vendor/*")}
    installed = [path for path in sorted(site.iterdir()) if path.name in vendored]
    skipped = ("site-packages", "dist-packages", "__pycache__")
    sources = {
        "library": _records("library", "code", library, _files(library, "**/*.py", skipped)),
        "licences": [
            record
            for pattern in LICENCES
            for record in _records(
                "licences", "law", site, _files(site, f"*.dist-info/**/{pattern}")
            )
        ],
        "installed": [
            record
            for folder in installed
            for record in _records("installed", "code", site, _files(folder, "**/*.py"))
        ],
    }
    for name, root in tools.items():
        sources[name] = _records(name, "code", root, _files(root, "**/*.py"))
    return sources


def tenth(sources: dict[str, Records]) -> dict[str, Records]:
    """A tenth of the corpus, whose copies lie in it together."""

    def is_in(record: dict[str, Any]) -> bool:
        key = Path(record["id"]).name
        return int(hashlib.sha256(key.encode()).hexdigest(), 16) % 10 == 0

    return {name: [r for r in records if is_in(r)] for name, records in sources.items()}


def write(folder: Path, sources: dict[str, Records], shards: int, order: int) -> dict[str, Any]:
    """Write JSONL shards of each source; return the recipe's sources."""
    keys = []
    for name, records in sources.items():
        place = folder / name
        place.mkdir(parents=True)
        mine = sorted(records, key=lambda r: hashlib.sha256(f"{order}{r['id']}".encode()).digest())
        for shard in range(shards):
            lines = [json.dumps(record) + "\n" for record in mine[shard::shards]]
            (place / f"{shard:03d}.jsonl").write_text("".join(lines), encoding="utf-8")
        for domain in sorted({record["domain"] for record in records}):
            keys.append({"name": name, "domain": domain, "path": name})
    return {"sources": keys}
