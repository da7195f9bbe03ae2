"""Arguments of a tool as words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import click

from ...spec.errors import InputError, nearest_name
from .tools import FILE_TEXT, Tool, is_list, is_switch, takes_file

WRITES_BESIDE = "export"
"""The tool that writes beside its plan, unless it is told where."""


def command_words(tool: Tool, arguments: Mapping[str, Any], folder: Path) -> list[str]:
    """Words of the command line that ask what a call asks.

    Values follow their flag by ``=`` and arguments follow ``--``, so that none is taken for a flag.

    Args:
        tool: what is called.
        arguments: by the names of its schema; None is as if left out.
        folder: where contents of files are written.

    Raises:
        InputError: an unknown name, or a value of a wrong type.
    """
    options: list[str] = []
    placed: dict[str, list[str]] = {}
    for name, value in arguments.items():
        param = tool.params.get(name)
        if param is None:
            near = nearest_name(name, list(tool.params), count=1)
            allowed = f"the arguments that the schema of {tool.name} has"
            raise InputError(name, "an unknown argument", allowed, near)
        if value is None:
            continue
        words = _values(name, param, value, folder)
        if isinstance(param, click.Argument):
            placed[name] = words
        elif is_switch(param):
            options += [max(param.opts, key=len)] if value else []
        else:
            options += [f"{max(param.opts, key=len)}={word}" for word in words]
    if tool.name == WRITES_BESIDE and any(folder.iterdir()) and arguments.get("out") is None:
        raise InputError("out", "nothing", "where to write, if the plan is passed as text", "out/")
    positions = [name for name, p in tool.params.items() if isinstance(p, click.Argument)]
    for before, after in pairwise(positions):
        if after in placed and before not in placed:
            raise InputError(before, "nothing", f"a value, as {after} has one")
    last = [word for name in positions for word in placed.get(name, ())]
    return [*tool.words, *options, *(["--", *last] if last else [])]


def _values(name: str, param: click.Parameter, value: Any, folder: Path) -> list[str]:
    if is_switch(param):
        if isinstance(value, bool):
            return []
        raise InputError(name, value, "true or false", "true")
    if not is_list(param):
        return [_value(name, param, value, folder)]
    if isinstance(value, list):
        return [_value(name, param, item, folder) for item in value]
    raise InputError(name, value, "a list", [value] if isinstance(value, str) else None)


def _value(name: str, param: click.Parameter, value: Any, folder: Path) -> str:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    if isinstance(value, Mapping) and takes_file(param):
        return str(_written(name, value, folder))
    text = "text or a number" + (
        ', or a file as {"name": …, "text": …}' if takes_file(param) else ""
    )
    raise InputError(name, value, text)


def _written(name: str, value: Mapping[str, Any], folder: Path) -> Path:
    keys = FILE_TEXT["required"]
    if sorted(value) != sorted(keys) or not all(isinstance(value[key], str) for key in keys):
        raise InputError(name, sorted(map(str, value)), '{"name": TEXT, "text": TEXT} and no other')
    file = PurePosixPath(value["name"]).name
    if not file or file != value["name"] or file == "..":
        raise InputError(f"{name}.name", value["name"], "a file's name without folders", file)
    place = folder / str(len(list(folder.iterdir())))
    place.mkdir()
    (place / file).write_text(value["text"], encoding="utf-8")
    return place / file
