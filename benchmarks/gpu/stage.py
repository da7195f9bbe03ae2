"""A stage of the report; every file of ``stages/`` is one.

A stage measures rows, one after another, within a budget of seconds; says how they read as
tables; and names what they have to show.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.shapes import Table

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).resolve().parent
Values = Mapping[str, Any]


class Measurement(NamedTuple):
    """One row: ``run`` takes at least ``least_s`` and gives JSON."""

    key: str
    run: Callable[[], Values]
    least_s: float = 1.0


class Verdict(NamedTuple):
    """A figure held against a target."""

    figure: str
    met: bool
    values: Values


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a stage; ``judge`` gives a verdict or its absence."""

    name: str
    target: str
    judge: Callable[[Mapping[str, Values]], Verdict | str]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Device, folders and time limit of a stage.

    ``facts`` describe device and machine; ``end_s`` is when its budget is spent, by the monotonic
    clock; ``known`` gives the good rows of another stage so far.
    """

    device: torch.device
    reduced: bool
    out: Path
    facts: Mapping[str, Any]
    known: Callable[[str], Mapping[str, Values]]
    end_s: float = field(default=float("inf"))

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.end_s - time.monotonic())


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the report.

    ``rows`` lists what is to be measured; ``tables`` shows good rows; stages run in the order
    of ``order``, each for at most ``budget_s``; in the reduced form
    ``reduced_s``, which only ends what hangs.
    """

    name: str
    order: int
    budget_s: float
    reduced_s: float
    shows: str
    rows: Callable[[Setting], Sequence[Measurement]]
    tables: Callable[[Mapping[str, Values]], Sequence[Table]]
    claims: tuple[Claim, ...] = ()

    def seconds(self, reduced: bool) -> float:
        """The budget."""
        return self.reduced_s if reduced else self.budget_s


def stages(folder: Path = HERE / "stages", package: str = "gpu.stages") -> list[Stage]:
    """Every stage, in order.

    Raises:
        TypeError: a file without a stage of its name.
    """
    loaded = []
    for name in sorted(path.stem for path in folder.glob("*.py")):
        stage = importlib.import_module(f"{package}.{name}").STAGE
        if not isinstance(stage, Stage) or stage.name != name:
            raise TypeError(f"stages/{name}.py: STAGE is not a Stage called {name}")
        loaded.append(stage)
    return sorted(loaded, key=lambda stage: stage.order)


def one_line(error: BaseException, most: int = 300) -> str:
    """Type and message of an error in one printable, shortened line."""
    from shardwright.api.cli.errors import one_line as shortened

    text, kind = shortened(error, most), type(error).__name__
    return f"{kind}: {text}" if text else kind
