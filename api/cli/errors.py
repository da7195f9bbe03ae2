"""One-line errors with an exit code; no traceback reaches a user."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import click

from ...spec.errors import (
    InfeasibleError,
    InputError,
    MissingInputError,
    ShardwrightError,
    UnknownKeyError,
    nearest_name,
    printable,
)
from ..problem.names import FLAG_ALIASES

MAX_LINE, MAX_INFEASIBLE_LINE, MAX_WHOLE_LINE = 300, 480, 1200
"""Characters of an error's line; of one that names changes that fit; of one to be copied whole."""
MIN_ALLOWED_LENGTH = 40
"""Characters below which a shortened list of allowed values tells nothing."""
DEBUG_VARIABLE = "SHARDWRIGHT_DEBUG"
INTERRUPTED_CODE = 130
"""The code of a command that Ctrl-C ended: 128 + SIGINT."""
BROKEN_PIPE_CODE = 141
"""The same of one whose reader went away: 128 + SIGPIPE."""
SIMULATE_ONLY_FLAGS = (
    "tp",
    "pp",
    "vpp",
    "dp",
    "sp",
    "shard",
    "schedule",
    "micro-batch",
    "recompute",
)
"""Flags of simulate that bare ``plan`` takes as pins."""


class InterruptedRunError(ShardwrightError):
    """Ctrl-C before there was a result."""

    exit_code = INTERRUPTED_CODE


def one_line(error: BaseException, limit: int = MAX_LINE) -> str:
    """The error as one printable line of at most ``limit`` characters."""
    text = printable(" ".join(str(error).split()))
    if len(text) <= limit:
        return text
    head, middle, rest = text.partition("; allowed: ")
    allowed, near, hint = rest.rpartition("; nearest: ")
    if not near:
        allowed, hint = rest, ""
    room = limit - len(head + middle + near + hint)
    if isinstance(error, InputError) and room >= MIN_ALLOWED_LENGTH:
        return head + middle + _clipped(allowed, room) + near + hint
    return _clipped(text, limit)


def _clipped(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    cut = text[: room - 2]
    return cut[: max(cut.rfind(" "), room // 2)].rstrip(" ,;") + " …"


def usage_error(error: click.UsageError) -> InputError:
    """Convert a parser error: field, given, allowed, nearest."""
    command = error.ctx.command_path if error.ctx is not None else "plan"
    flags = f"the flags that {command} --help lists"
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error, flags)
    if isinstance(error, click.BadOptionUsage):
        name = error.option_name
        if "does not take a value" in error.message:
            return InputError(name, "a value", "the flag alone", name)
        return InputError(name, "nothing", "a value after it", f"{name} VALUE")
    if isinstance(error, click.MissingParameter):
        name = error.param.metavar or error.param.name if error.param is not None else "argument"
        return InputError(str(name), "nothing", f"a value ({command} --help shows its place)")
    text = error.format_message().strip().rstrip(".").removeprefix("Got ")
    return InputError(command, text, f"its arguments and {flags}")


def _unknown_option(error: click.NoSuchOption, flags: str) -> InputError:
    typed = error.option_name
    names: list[str] = []
    if error.ctx is not None:
        params = [p for p in error.ctx.command.get_params(error.ctx) if not getattr(p, "hidden", 0)]
        names = [opt for param in params for opt in param.opts if opt.startswith("--")]
    bare = typed.lstrip("-")
    meant = FLAG_ALIASES.get(bare.casefold().replace("_", "-"), typed)
    near = meant if meant in names else nearest_name(typed, names, count=1)
    bare = bare if meant == typed else meant.lstrip("-")
    if bare.replace("_", "-") in SIMULATE_ONLY_FLAGS and f"--{bare}" not in names:
        near = f"--pin {bare.replace('-', '_')}=…, or plan simulate --{bare.replace('_', '-')} …"
    return InputError(typed, "an unknown flag", flags, near)


def report(error: BaseException) -> int:
    """Print ``error`` as one line on standard error; return its exit code."""
    if isinstance(error, click.UsageError):
        error = usage_error(error)
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    if isinstance(error, ShardwrightError):
        _print_error(one_line(error, _limit(error)))
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        _print_error("interrupted")
        return INTERRUPTED_CODE
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return BROKEN_PIPE_CODE
    if isinstance(error, OSError) and error.filename is None:
        _discard_output()
        _print_error(
            f"output: got {error.strerror or error}; allowed: a place with room to write to"
        )
        return InputError.exit_code
    detail = f"{type(error).__name__}: {error}{_error_location(error)}"
    hint = f"; please report this line; {DEBUG_VARIABLE}=1 shows more"
    _print_error(
        _clipped(printable(" ".join(f"internal error: {detail}".split())), MAX_LINE - len(hint))
        + hint
    )
    return 1


def _limit(error: ShardwrightError) -> int:
    if isinstance(error, (MissingInputError, UnknownKeyError)):
        return MAX_WHOLE_LINE
    return MAX_INFEASIBLE_LINE if isinstance(error, InfeasibleError) else MAX_LINE


def _error_location(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _print_error(line: str) -> None:
    try:
        click.echo(line, err=True)
    except OSError:  # nobody reads the error output any more; the exit code still tells
        return


def _discard_output() -> None:
    """Discard buffered output, so that closing the stream raises nothing."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):  # the stream is no file, as under a test
        return
