"""Rows as a pandas DataFrame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..spec.errors import InputError


def frame(rows: Iterable[dict[str, Any]]) -> Any:
    """A DataFrame of the rows, their keys its columns.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        allowed = "an environment with pandas (the extra notebook brings it)"
        raise InputError("to_frame", "no pandas", allowed, "pip install pandas") from None
    return pandas.DataFrame(list(rows))
