"""End of a run that a signal stopped: the command that goes on, and the exit code."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import click

from .output import note

SIGNAL_BASE = 128
"""Exit codes of signals are this and their number."""


def end_if_stopped(document: Mapping[str, Any]) -> None:
    """Say how to go on with a stopped run, and exit with its signal's code.

    ``document``: of ``plan execute``.
    """
    from ...executor.launch.run_text import stopped_text

    stopped = document.get("stopped")
    if stopped is None:
        return
    again = ""
    if stopped["saved"] is not None:
        again = f"; to go on: {resume_command(click.get_current_context(), stopped['saved'])}"
    note(stopped_text(stopped) + again)
    raise SystemExit(SIGNAL_BASE + signal.Signals[stopped["signal"]])


def resume_command(context: click.Context, folder: str) -> str:
    """The command line that was typed, resuming from ``folder``."""
    typed = [word for param in context.command.params for word in _typed(context, param)]
    return shlex.join([*context.command_path.split(), *typed, "--resume", folder])


def _typed(context: click.Context, param: click.Parameter) -> Iterator[str]:
    """Words of a parameter as on the command line; none if it was not given."""
    name = str(param.name)
    given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if not given or name == "resume":
        return
    value = context.params[name]
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(param, click.Option):
            yield max(param.opts, key=len)
        if one is not True:
            yield str(one)
