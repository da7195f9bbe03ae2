"""Files of sources, by format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...spec.errors import InputError, nearest_name
from ..recipes.recipe import Format, Recipe, TextSource

SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
    ".parquet": "parquet",
    ".html": "html",
    ".htm": "html",
    ".warc": "warc",
    ".warc.gz": "warc",
}
"""All others are read as one text a file."""
NEEDS: Mapping[str, str] = {"parquet": "pyarrow", "html": "trafilatura", "warc": "trafilatura"}
"""Libraries of the extra ``data`` that formats need."""
HIDDEN = "__pycache__"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source; ``name``: its path in the source."""

    source: int
    path: Path
    name: str
    format: Format
    size_bytes: int


def file_format(path: Path, source: TextSource) -> Format:
    """Format that a source states, or that of the file's suffix."""
    if source.format is not None:
        return source.format
    ending = path.name.casefold()
    return next((kind for suffix, kind in SUFFIXES.items() if ending.endswith(suffix)), "text")


def source_files(recipe: Recipe, folder: Path) -> list[SourceFile]:
    """Files of every source, sorted by source and name.

    Raises:
        InputError: a source without a file.
    """
    found: list[SourceFile] = []
    for number, source in enumerate(recipe.sources):
        root = folder / Path(source.path).expanduser()
        if not root.exists():
            near = nearest_name(root.name, _names(root.parent))
            raise InputError(f"sources: {source.name}", str(root), "a file or a folder", near)
        paths = [root] if root.is_file() else sorted(_files(root, source.pattern))
        if not paths:
            allowed = f"files of the pattern {source.pattern} in {root}"
            raise InputError(f"sources: {source.name}", "no file", allowed)
        for path in paths:
            name = path.name if path == root else path.relative_to(root).as_posix()
            size = path.stat().st_size
            kind = file_format(path, source)
            found.append(
                SourceFile(source=number, path=path, name=name, format=kind, size_bytes=size)
            )
    return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())[:1000]
    except OSError:
        return []


def _files(root: Path, pattern: str) -> list[Path]:
    try:
        return [p for p in root.glob(pattern) if HIDDEN not in p.parts and p.is_file()]
    except (ValueError, NotImplementedError) as error:
        raise InputError("sources: pattern", pattern, f"a pattern of files ({error})") from None


def needed_libraries(files: list[SourceFile]) -> dict[str, str]:
    """Modules that the files' formats need, with the format."""
    needs = {NEEDS[file.format]: str(file.format) for file in files if file.format in NEEDS}
    if any(file.path.name.casefold().endswith(".zst") for file in files):
        needs["zstandard"] = "jsonl.zst"
    return needs
