"""No object is loaded by its own code, whatever a row of the database says.

The durable library reads the serializer of a value from the value's row, and one of those that it
knows unpickles. Whoever can write rows must not run code by that.
"""

from __future__ import annotations

import sys
from typing import Any

PICKLES = "pickle.find_class"
"""Python's audit event before a pickle names anything that could be called."""


class PickleRefusedError(RuntimeError):
    """A stored value asks to be unpickled."""


def refuse_pickles() -> None:
    """Refuse them in this process, for good.

    A hook of the interpreter cannot be taken back, nor passed by. The library's own serializer is
    refused by name besides, so that a pickle that names nothing is no answer either.
    """
    from dbos import _serialization

    sys.addaudithook(_refuse_event)
    refused: Any = _serialization.DefaultSerializer
    refused.deserialize = _refuse_value


def _refuse_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == PICKLES:
        raise PickleRefusedError("stored values are JSON: pickles are refused")


def _refuse_value(self: Any, value: Any) -> Any:
    raise PickleRefusedError(f"stored values are JSON: the serializer {self.name()} is refused")
