"""Fault injection for tests: break a rank at a chosen step.

Only a job's payload or ``SHARDWRIGHT_FAULTS`` in a worker's environment, as JSON, injects faults;
user runs have none.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...spec.codec import from_document, parse_json
from ...spec.errors import InputError, one_of

VARIABLE = "SHARDWRIGHT_FAULTS"
FaultKind = Literal["kill", "stop", "hang", "slow", "raise", "exit"]
FAULT_KINDS: tuple[FaultKind, ...] = ("kill", "stop", "hang", "slow", "raise", "exit")
EXIT_CODE = 7
FOREVER_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a rank in a step.

    ``how``: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``hang`` (sleeps forever), ``slow`` (sleeps
    ``seconds`` in this and every later step), ``raise`` or ``exit``. ``at``: at the step's
    beginning, at complete gradients, or, in step 1, before joining the world (``join``, from the
    environment only). ``attempt``: only in this restart of the run.
    """

    rank: int
    step: int
    how: FaultKind
    at: Literal["join", "begin", "update"] = "begin"
    seconds: float = 0.0
    attempt: int = 0

    def __post_init__(self) -> None:
        one_of("fault", self.how, FAULT_KINDS)
        if self.step < 1:
            raise InputError("fault.step", self.step, "at least 1", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultList:
    """The faults of a run."""

    faults: tuple[Fault, ...] = ()

    def inject(self, rank: int, step: int, at: str, attempt: int) -> None:
        """Inject a rank's faults at this point of a step."""
        for fault in self.faults:
            if (fault.rank, fault.at, fault.attempt) != (rank, at, attempt):
                continue
            if fault.how == "slow" and step >= fault.step:
                time.sleep(fault.seconds)
            elif fault.step == step:
                _inject(fault)


def faults_of(environment: Mapping[str, str]) -> list[dict[str, object]]:
    """Faults in a worker's environment, formatted as a payload's; usually none.

    Raises:
        InputError: no JSON list of faults.
    """
    text = environment.get(VARIABLE)
    if text is None:
        return []
    document = {"faults": parse_json(text, VARIABLE)}
    from_document(FaultList, document, VARIABLE)
    faults: list[dict[str, object]] = document["faults"]
    return faults


def attempt_of(environment: Mapping[str, str]) -> int:
    """Number of restarts of this run by torchrun."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _inject(fault: Fault) -> None:
    if fault.how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.how == "hang":
        time.sleep(FOREVER_S)
    elif fault.how == "raise":
        raise ValueError(f"a fault that was asked for in step {fault.step}")
    elif fault.how == "exit":
        os._exit(EXIT_CODE)
