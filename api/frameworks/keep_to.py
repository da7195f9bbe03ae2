"""A question kept to what a framework can run and its files can say."""

from __future__ import annotations

from dataclasses import replace

from ...planner.solve.problem import Problem
from ...spec.errors import InputError
from ..problem.resolve import Inputs, resolve
from .framework import Framework
from .shipped import framework_named

FLAG = "--for"


def kept_to(name: str, inputs: Inputs) -> tuple[Problem, Problem]:
    """The problem for a framework, and the free one that its answer is held against.

    The framework's stack prices the first, with settings if ``--stack`` names it with some; its
    limits are narrowed to what its files say. The free problem is the same without ``--for``.

    Raises:
        InputError: no framework of that name whose files are written, another stack beside it, or
            a problem that cannot be resolved.
    """
    framework = framework_named(name, FLAG, written=True)
    problem = resolve(replace(inputs, stack=_stack(framework, inputs.stack)))
    kept = replace(problem, stack=framework.narrow(problem.stack))
    return kept, resolve(replace(inputs, stack=None))


def refuse_beside(name: str, **flags: bool) -> None:
    """Refuse flags that ask for another space than a framework's.

    Args:
        name: of the framework.
        flags: whether each is set, by its argument's name.

    Raises:
        InputError: for the first that is set.
    """
    for argument, given in flags.items():
        if given:
            raise InputError(FLAG, name, f"nothing beside --{argument.replace('_', '-')}")


def _stack(framework: Framework, typed: str | None) -> str:
    if typed is None:
        return framework.stack
    names = (framework.stack, *framework.other_stacks)
    if typed.partition(":")[0] not in names:
        known = " or ".join(names)
        allowed = f"{known} with settings, or nothing, beside {FLAG} {framework.name}"
        raise InputError("--stack", typed, allowed, framework.stack)
    return typed
