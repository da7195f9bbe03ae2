"""Passes of a stage, by schedule kind or from action text.

An action is a letter, the chunk, a dot and the micro-batch: ``F0.3`` forward, ``B0.3`` a whole
backward, ``I0.3`` and ``W0.3`` the input gradient and the weight gradients of a split one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ..errors import InputError
from .passes import BackwardPart, Pass
from .stage_order import ScheduleKind, stage_order

ActionLines = tuple[str, ...] | None
"""Explicit actions, one line a stage; None: those of the schedule's kind."""
ACTION = re.compile(r"([FBIW])(\d{1,6})\.(\d{1,9})")
PARTS: dict[str, BackwardPart] = {"B": "whole", "I": "input", "W": "weight"}
LETTERS = {part: letter for letter, part in PARTS.items()}
ALLOWED = "words such as F0.1 B0.1 I0.1 W0.1 (letter, chunk, micro-batch) with spaces between"


@lru_cache(maxsize=4096)
def parse_actions(line: str) -> tuple[Pass, ...]:
    """Parse the actions of one stage.

    Raises:
        InputError: a word that is no pass.
    """
    passes = []
    for word in line.split():
        match = ACTION.fullmatch(word)
        if match is None:
            raise InputError("schedule.actions", word, ALLOWED)
        letter, chunk, micro_batch = match.groups()
        forward = letter == "F"
        part: BackwardPart = "whole" if forward else PARTS[letter]
        passes.append(Pass(forward, int(chunk), int(micro_batch), part))
    return tuple(passes)


def format_actions(order: Sequence[Pass]) -> str:
    """The inverse of :func:`parse_actions`; overlapping passes are written one after the other."""
    letters = ((pass_, "F" if pass_.forward else LETTERS[pass_.part]) for pass_ in order)
    return " ".join(f"{letter}{pass_.chunk}.{pass_.micro_batch}" for pass_, letter in letters)


def order_of(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, micro_batches: int, lines: ActionLines
) -> tuple[Pass, ...]:
    """The passes of ``stage`` in the order it runs them.

    Arguments as ``stage_order``.
    """
    if lines is None:
        return stage_order(kind, stage, stages, chunks, micro_batches)
    return parse_actions(lines[stage])


__all__ = ["ActionLines", "format_actions", "order_of", "parse_actions"]
