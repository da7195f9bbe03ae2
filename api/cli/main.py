"""The command ``plan`` (alias ``shardwright``): search, simulate, explain, run, serve.

Only click is imported here, so that help, completion and usage errors are immediate; each verb
imports the rest when it runs. Every exception ends as one line and an exit code.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from ... import __version__
from ...spec.choices import GALVATRON_COSTS
from ...spec.errors import (
    InputError,
    MissingInputError,
    NotBuiltError,
    ShardwrightError,
    nearest_name,
)
from .errors import InterruptedRunError, report
from .flags import (
    COST,
    EXECUTION,
    JSON_OPTION,
    OBJECTIVE,
    PRICING,
    PROBLEM,
    compose,
    preset_names,
)
from .frameworks.verbs import FOR_FRAMEWORK
from .value_types import InputFileParam, NameParam, NumberParam, OutputFileParam, WholeNumberParam
from .verbs import VERBS

PROGRAM_NAME = "plan"
NOT_BUILT_VERBS = (
    "diagnose",
    "size",
)
EPILOG = """\b
Examples:
  plan                                    the embedded model on this machine
  plan --execute                          the same, and run it, as plan execute PLAN.json does
  plan --model llama-3-70b --cluster 8x8xH100-80GB --global-batch 512 --seq-len 8192
  plan --model qwen3-4b --cluster 2x4090 --global-batch 16 --seq-len 2048 \\
       --trainable lora:r=16,target_modules=all-linear      (adapters, by PEFT's names)
  plan --model llama-3.1-8b --cluster p4de.24xlarge --global-batch 64 --seq-len 4096 \\
       --grad-dtype bf16 --master-dtype none --moment-dtype bf16    (pure bf16, as torchtune)
  plan --pin tp=8 --pin recompute@1-40=full ... --out plan.json
  plan simulate plan.json --trace trace.json

\b
Shell completion (bash; zsh and fish alike): eval "$(_PLAN_COMPLETE=bash_source plan)"
"""


class PlanGroup(click.Group):
    """Verb group; other words are refused with the nearest verb."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the verb of the first argument.

        Raises:
            NotBuiltError: a contract verb that this version lacks.
            InputError: no verb.
        """
        if not ctx.resilient_parsing and args[0] not in self.commands:
            raise _verb_error(args[0])
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Verbs before flags, so that a first screen names them all."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb without click's messages for Ctrl-C and closed pipes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted before there was a result") from None
        except BrokenPipeError as error:
            raise _ClosedPipeError from error


class _ClosedPipeError(Exception):
    """The reader of the output went away."""


def _verb_error(typed: str) -> ShardwrightError:
    if typed in NOT_BUILT_VERBS:
        return NotBuiltError(f"plan {typed}")
    verbs = sorted(VERBS)
    near = nearest_name(typed, [*verbs, *NOT_BUILT_VERBS], count=1)
    if typed == "help":
        near = "plan --help"
    elif typed == PROGRAM_NAME:
        near = "what follows, without this word"
    elif typed.endswith(".json"):
        near = f"plan explain {typed}"
    elif not near and (models := nearest_name(typed, preset_names(), count=1)):
        near = f"plan --model {models}"
    return InputError("plan", typed, "a verb (" + ", ".join(verbs) + "), or flags alone", near)


@click.group(
    PROGRAM_NAME,
    cls=PlanGroup,
    invoke_without_command=True,
    options_metavar="[FLAGS]",
    subcommand_metavar="[VERB ...]",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
)
@compose(
    PROBLEM,
    OBJECTIVE,
    COST,
    click.option("--pin", "pins", multiple=True, metavar="KEY[@LAYERS]=V",
                 help="Fix a decision, such as tp=8 or recompute@1-40=full; repeatable."),
    click.option("--allow", metavar="NAME[:CAP],…",
                 help="Also try these techniques' lossy values; what is taken heads the output."),
    PRICING,
    click.option("--top", type=WholeNumberParam(least=0, most=100), metavar="K",
                 help="How many other plans to show (default 3)."),
    click.option("--deadline", type=NumberParam(unit="seconds", most=1e6), metavar="S",
                 help="Answer after S seconds with the best plan so far."),
    click.option("--galvatron-profile", type=InputFileParam(), metavar="DIR",
                 help="Plan by what Galvatron's profilers wrote there, under its own costs."),
    click.option("--costs", type=NameParam("galvatron|ours", lambda: GALVATRON_COSTS),
                 help="With such a profile: whose costs (galvatron)."),
    click.option("--out", type=OutputFileParam(),
                 help="Write the plan here, in its report if it is not priced as usual."),
    JSON_OPTION,
    click.option("--execute", is_flag=True, help="Run the plan on this machine."),
    EXECUTION,
    click.option("--measure-top", type=WholeNumberParam(most=10), metavar="K",
                 help="With --execute: run the best K plans and correct the prices by them."),
    FOR_FRAMEWORK,
    click.version_option(__version__, "--version", prog_name="shardwright",
                         message="%(prog)s %(version)s"),
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context, /, **flags: Any) -> None:
    """Find the best training plan of a model on a cluster (default: this machine)."""
    if ctx.invoked_subcommand is None:
        from .plan import plan_command

        plan_command(flags)
        return
    for param in ctx.command.params:
        source = ctx.get_parameter_source(str(param.name))
        if source is click.core.ParameterSource.COMMANDLINE:
            flag = max(param.opts, key=len)
            allowed = "flags after the verb"
            near = f"plan {ctx.invoked_subcommand} {flag} …"
            raise InputError(flag, f"a place before {ctx.invoked_subcommand}", allowed, near)


for _verb in VERBS.values():
    cli.add_command(_verb)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line without tracebacks; return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # odd names must not break a narrow terminal
            stream.reconfigure(errors="replace")
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = cli.main(arguments, prog_name=_program(), standalone_mode=False)
        sys.stdout.flush()
    except _ClosedPipeError:
        return report(BrokenPipeError())
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except MissingInputError as error:
        command = f"{shlex.join([_program(), *arguments])} {error.flags}"
        return report(MissingInputError(error.usual, command))
    except BaseException as error:
        return report(error)
    return code if isinstance(code, int) else 0


def _program() -> str:
    typed = Path(sys.argv[0]).stem
    return typed if typed == "shardwright" else PROGRAM_NAME


def main() -> NoReturn:
    """Entry point of ``plan`` and ``shardwright``.

    A search's objects are not freed one by one, which takes a second, unless other processes or
    threads were started. Numpy's products use one thread: the thread count would change the last
    bits of sums, and so the choice among equal plans.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    if "multiprocessing" in sys.modules or threading.active_count() > 1:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
