"""Settings of stacks: ``NAME:setting=value,…``, from ``stack_settings.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...spec.errors import InputError, nearest_name
from .tables import read_table

FORM = "NAME:setting=value,…"
SYNONYMS = {"on": ("true", "yes", "1", "enabled"), "off": ("false", "no", "0", "none", "disabled")}
"""Words that are often meant by a setting's."""
Settings = Mapping[str, str]


def all_settings() -> Mapping[str, Mapping[str, Any]]:
    """Every setting's table, in the order of application."""
    tables: Mapping[str, Mapping[str, Any]] = read_table("stack_settings")["settings"]
    return tables


def stack_aliases() -> Mapping[str, str]:
    """Older names -> stacks with settings."""
    aliases: Mapping[str, str] = read_table("stack_settings")["aliases"]
    return aliases


def stack_names() -> list[str]:
    """Every name of a stack, older ones last."""
    return [*read_table("stacks"), *stack_aliases()]


def settings_of(name: str) -> Mapping[str, Sequence[str]]:
    """The settings of a stack with their values."""
    return {
        key: tuple(table["values"])
        for key, table in all_settings().items()
        if name in table.get("stacks", [name])
    }


def setting_figures(key: str, value: str) -> Mapping[str, Any]:
    """The figures that a value of a setting changes."""
    figures: Mapping[str, Any] = all_settings()[key]["values"][value]
    return figures


def parse_stack(text: str, where: str) -> tuple[str, dict[str, str]]:
    """The stack of a text, and its settings in the order of application.

    An older name is a stack with settings, which further settings replace.

    Raises:
        InputError: no such stack, setting or value; the nearest are given.
    """
    name, colon, words = text.partition(":")
    name = name.strip()
    inherited: dict[str, str] = {}
    if name in stack_aliases():
        name, inherited = parse_stack(stack_aliases()[name], where)
    if name not in read_table("stacks"):
        names = stack_names()
        allowed = ", ".join(names)
        raise InputError(where, text if "=" in name else name, allowed, nearest_name(name, names))
    if colon and not words.strip():
        raise InputError(where, text, f"{name}, or {FORM}", name)
    chosen = parse_settings(words, name, where) if colon else {}
    return name, _ordered({**inherited, **chosen})


def parse_settings(text: str, name: str, where: str) -> dict[str, str]:
    """The settings of ``setting=value,…`` for a stack.

    Raises:
        InputError: one that the stack lacks, no such value, or one given twice.
    """
    chosen: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        check_setting(key, value, name, where)
        if chosen.get(key, value) != value:
            raise InputError(where, f"{key}={chosen[key]} and {key}={value}", f"one {key}")
        chosen[key] = value
    return _ordered(chosen)


def check_setting(key: str, value: str, name: str, where: str) -> None:
    """Check a setting of a stack.

    Raises:
        InputError: the stack lacks it, or it has no such value.
    """
    known, shown = settings_of(name), f"{key}={value}" if value else key
    if key not in all_settings():
        usual = [f"{k}={v}" for k, values in known.items() for v in values]
        near = nearest_name(shown, usual) or nearest_name(key, known)
        raise InputError(where, shown, f"settings of {name}: {', '.join(known)}", near)
    values = tuple(all_settings()[key]["values"])
    if key not in known:
        table = all_settings()[key]
        owners = " or ".join(table["stacks"])
        allowed = f"settings of {name}, not {key}, which {owners} has"
        raise InputError(where, shown, allowed, table.get("instead", table["stacks"][0]))
    if value not in values:
        near = next((v for v, words in SYNONYMS.items() if value.casefold() in words), "")
        near = near if near in values else nearest_name(value, values)
        near = f"{key}={near or values[-1]}"
        raise InputError(where, shown, f"{key}={'|'.join(values)}", near)


def stack_text(name: str, settings: Settings) -> str:
    """A stack with its settings in one word."""
    words = ",".join(f"{key}={value}" for key, value in _ordered(settings).items())
    return f"{name}:{words}" if words else name


def help_text() -> str:
    """Stacks and settings as ``--help`` lists them."""
    names = ", ".join(read_table("stacks"))
    settings = ", ".join(
        f"{key}={'|'.join(table['values'])}" for key, table in all_settings().items()
    )
    older = ", ".join(f"{name} ({text})" for name, text in stack_aliases().items())
    return (
        f"Training software: {names}; older names: {older}. {FORM} says what a run is made with: "
        f"{settings}."
    )


def _ordered(settings: Settings) -> dict[str, str]:
    return {key: settings[key] for key in all_settings() if key in settings}
