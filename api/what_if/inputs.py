"""Questions from typed changes: ``KEY=VALUE``, ``KEY=a,b,c``, mappings, a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...planner.what_if.question import SCALES, Question, Sweep
from ...planner.what_if.setting import Given, Value
from ...spec.errors import InputError, one_of
from ...spec.inputs.what_if_keys import WHAT_IF_KEYS
from ..problem.expert_load import is_word, load_of_file
from ..problem.model_and_cluster import ClusterLike, cluster_of

SET_EXAMPLE = "inter_node.bandwidth=2x"
SWEEP_EXAMPLE = "inter_node.bandwidth=0.5x,1x,2x"
SetValues = Iterable[str] | Mapping[str, Value]
SweepValues = str | Mapping[str, Sequence[Value]]


def question_of(
    sets: SetValues = (),
    sweep: SweepValues | Sequence[SweepValues] | None = None,
    add: ClusterLike | None = None,
    scale: str | None = None,
) -> Question:
    """Parse a question.

    Args:
        sets: ``KEY=VALUE`` texts, or a mapping of keys to values (numbers are SI).
        sweep: one ``KEY=a,b,c``, or a mapping of one key to its values.
        add: a cluster that joins the plan's.
        scale: ``batch`` or ``fixed`` (also None).

    Raises:
        InputError: a text or a mapping of another form, two sweeps, no such cluster.
    """
    return Question(
        sets=tuple(_set_value(text) for text in _listed(sets)),
        sweep=None if sweep is None else _sweep_of(sweep),
        add=None if add is None else cluster_of(add, "--add"),
        scale="fixed" if scale is None else one_of("--scale", scale, SCALES),
    )


def with_traces_read(question: Question) -> Question:
    """The question with the routing trace read that ``expert_load`` is set to.

    A service does not call it: it opens no file that a request names.

    Raises:
        InputError: no usable trace.
    """
    sets = tuple((path, _read_trace(path, value)) for path, value in question.sets)
    return replace(question, sets=sets)


def _read_trace(path: str, value: Given) -> Given:
    is_load = path.strip().casefold().replace("-", "_") == "expert_load"
    if not is_load or not isinstance(value, str) or is_word(value):
        return value
    return load_of_file(value, f"--set {path}")


def _listed(sets: SetValues) -> Iterable[str | tuple[str, Value]]:
    if isinstance(sets, Mapping):
        return list(sets.items())
    if isinstance(sets, str):
        return [sets]
    if not isinstance(sets, Iterable):
        raise InputError("--set", sets, "KEY=VALUE, several, or a mapping", SET_EXAMPLE)
    return sets


def _set_value(change: str | tuple[str, Value]) -> tuple[str, Value]:
    if isinstance(change, tuple):
        return change
    if not isinstance(change, str):
        raise InputError("--set", change, "KEY=VALUE", SET_EXAMPLE)
    path, equals, value = change.partition("=")
    if not (path.strip() and equals and value.strip()):
        raise InputError("--set", change, "KEY=VALUE", _with_value(path, SET_EXAMPLE))
    if len(_values(path.strip(), value)) > 1:
        raise InputError("--set", change, "one value; --sweep takes several", f"--sweep {change}")
    return path.strip(), value.strip()


def _with_value(path: str, example: str) -> str:
    name = path.strip()
    keys = [key.path.rpartition(".")[2] for key in WHAT_IF_KEYS]
    is_key = name.rpartition(".")[2] in keys
    return f"{name}={example.partition('=')[2]}" if is_key else example


def _sweep_of(sweep: SweepValues | Sequence[SweepValues]) -> Sweep:
    if not isinstance(sweep, (str, Mapping)):
        if len(sweep) != 1:
            raise InputError("--sweep", f"{len(sweep)} sweeps", "one; fix other keys with --set")
        return _sweep_of(sweep[0])
    if isinstance(sweep, Mapping):
        if len(sweep) != 1:
            raise InputError("--sweep", f"{len(sweep)} keys", "one; fix other keys with --set")
        path, values = next(iter(sweep.items()))
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"--sweep {path}", values, "a list of values")
        return Sweep(path=path, values=tuple(values))
    path, equals, text = sweep.partition("=")
    parts = _values(path.strip(), text)
    if not (path.strip() and equals and all(parts)):
        near = _with_value(path, SWEEP_EXAMPLE)
        raise InputError("--sweep", sweep, "KEY=a,b,c", near)
    repeated = next((part for part in parts if parts.count(part) > 1), None)
    if repeated is not None:
        near = f"{path}={','.join(dict.fromkeys(parts))}"
        raise InputError("--sweep", f"{repeated} twice", "each value once", near)
    return Sweep(path=path.strip(), values=parts)


def _values(path: str, text: str) -> tuple[str, ...]:
    """Values between commas; further settings of a stack belong to the stack before."""
    parts: list[str] = []
    for part in (word.strip() for word in text.split(",")):
        if path == "stack" and parts and ":" in parts[-1] and "=" in part and ":" not in part:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return tuple(parts)
