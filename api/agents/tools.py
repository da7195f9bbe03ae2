"""Tools: verbs of the command line, with schemas of their flags.

A schema is made of the same flags that a terminal takes, so that no second list exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..cli.flags import CLUSTER_TYPE, MODEL_TYPE
from ..cli.value_types import InputFileParam, NumberParam, OutputFileParam, WholeNumberParam

GROUP_TOOL = "plan"
TOOL_VERBS = (
    "simulate",
    "what-if",
    "explain",
    "compare",
    "import",
    "export",
    "diagnose",
    "size",
    "models",
    "clusters",
    "doctor",
    "validate",
)
"""Verbs that answer a question; none runs a plan or measures the machine."""
FILE_TEXT: dict[str, Any] = {
    "type": "object",
    "description": "A file's content in place of its path; its name tells its form.",
    "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
    "required": ["name", "text"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its words on the command line, and its parameters by their names here."""

    name: str
    words: tuple[str, ...]
    command: click.Command
    params: Mapping[str, click.Parameter]

    @property
    def description(self) -> str:
        """The command's help, and for a verb what follows its flags there."""
        texts = [self.command.help or ""]
        if self.words and self.command.epilog:
            texts.append(self.command.epilog)
        lines = "\n\n".join(texts).replace("\b\n", "").splitlines()
        return "\n".join(line.rstrip() for line in lines).strip()

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        context = click.Context(self.command, info_name=self.name)
        properties = {name: _property(param, context) for name, param in self.params.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}


def tools_of(group: click.Group, left_out: Sequence[str]) -> dict[str, Tool]:
    """Tools of a command group, by name.

    Args:
        group: the command itself; without a verb it searches.
        left_out: names of its own parameters that no tool has: those that run a plan.
    """
    made = [_tool(GROUP_TOOL, (), group, {*left_out})]
    for verb in TOOL_VERBS:
        made.append(_tool(verb.replace("-", "_"), (verb,), group.commands[verb], set()))
    return {tool.name: tool for tool in made}


def _tool(name: str, words: tuple[str, ...], command: click.Command, without: set[str]) -> Tool:
    return Tool(name, words, command, dict(_params(command, without | {"json_target"})))


def _params(command: click.Command, without: set[str]) -> Iterator[tuple[str, click.Parameter]]:
    for param in command.params:
        if param.name in without or getattr(param, "is_eager", False):
            continue
        if isinstance(param, click.Argument):
            yield str(param.name), param
        else:
            yield max(param.opts, key=len).lstrip("-").replace("-", "_"), param


def takes_file(param: click.Parameter) -> bool:
    """True if a parameter reads a file, whose content may be passed."""
    if isinstance(param.type, OutputFileParam):
        return False
    return isinstance(param.type, InputFileParam) or param.type in (MODEL_TYPE, CLUSTER_TYPE)


def is_list(param: click.Parameter) -> bool:
    """True if a parameter may be given more than once."""
    return param.nargs == -1 or bool(getattr(param, "multiple", False))


def is_switch(param: click.Parameter) -> bool:
    """True if a parameter takes no value."""
    return bool(getattr(param, "is_flag", False))


def _property(param: click.Parameter, context: click.Context) -> dict[str, Any]:
    shape = _shape(param)
    if is_list(param):
        shape = {"type": "array", "items": shape}
    record = param.get_help_record(context)
    text = (record and record[1]) or f"{param.metavar}, as on the command line."
    return {**shape, "description": text}


def _shape(param: click.Parameter) -> dict[str, Any]:
    kind = param.type
    if is_switch(param):
        return {"type": "boolean"}
    if isinstance(kind, WholeNumberParam):
        return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
    if isinstance(kind, NumberParam):
        return {"type": "number", "exclusiveMinimum": kind.above, "maximum": kind.most}
    if isinstance(kind, click.types.IntParamType) and kind.name == "integer":
        return {"type": "integer"}
    if takes_file(param):
        return {"anyOf": [{"type": "string"}, FILE_TEXT]}
    return {"type": ["string", "number"]}
