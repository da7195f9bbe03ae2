"""Texts that a user names in a recipe: seeds of quality, benchmarks."""

from __future__ import annotations

from pathlib import Path

from ..recipes.recipe import TextSource
from ..sources.readers import read_texts
from ..sources.source_files import SourceFile, file_format


def user_texts(names: tuple[str, ...], folder: Path, where: str, field: str = "text") -> list[str]:
    """Texts of files, each by its suffix.

    Raises:
        InputError: no such file, or no text in it.
    """
    texts: list[str] = []
    for name in names:
        path = folder / Path(name).expanduser()
        source = TextSource(name=where, domain=where, path=name, text=field)
        size_bytes = path.stat().st_size if path.is_file() else 0
        file = SourceFile(
            source=0,
            path=path,
            name=name,
            format=file_format(path, source),
            size_bytes=size_bytes,
        )
        texts += [text for _, text in read_texts(file, source)]
    return texts
