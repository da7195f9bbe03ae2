"""PublishedRun: one checked row of a table of measured runs.

Blanks are None. Sizes are of the whole model and run: ``micro_batch`` is samples a replica,
``global_batch`` samples a step, ``ffn`` of a model with experts that of one. A table of times
(``runs.csv``) prints seconds a step or tokens a second; TFLOP/s are counted differently by every
source and not compared. A table of memory (``memory.csv``) prints the peak of a device, counted as
``metric_kind`` names: ``peak_mem_gib`` of an allocator or of the driver, and ``oom`` 1 where the
run ended for lack of memory.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...spec.errors import InputError, nearest_name
from ...spec.files import MAX_TABLE_BYTES, open_file

TABLE = Path(__file__).with_name("runs.csv")
PEAK = "peak_mem_gib"
"""The column that tables of memory have and those of times lack."""
MEMORY_TABLE = Path(__file__).with_name("memory.csv")
TEXT_COLUMNS = (
    "id",
    "source",
    "hardware",
    "interconnect",
    "model",
    "dtype",
    "recompute",
    "notes",
    "optimizer",
    "metric_kind",
    "stack",
    "where",
)
TIME_COLUMNS = ("interconnect", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")
MEMORY_COLUMNS = ("sp", "optimizer", "peak_mem_gib", "alloc_mem_gib", "oom", "metric_kind")
"""Columns of only one of the two kinds of tables."""
STACK_COLUMNS = ("stack", "where")
"""Columns that a table may leave out: ``NAME[:setting=value,…]`` of the run, or settings alone."""
UNNAMED = "unnamed"
"""Source of rows without an id, which get one with their line."""
NUMBER_COLUMNS = ("step_time_s", "peak_mem_gib", "alloc_mem_gib", *TIME_COLUMNS[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One measured run as its source printed it."""

    id: str
    source: str
    hardware: str
    model: str
    dtype: str
    recompute: str
    notes: str
    gpus: int | None
    gpus_per_node: int | None
    layers: int | None
    hidden: int | None
    ffn: int | None
    heads: int | None
    kv_heads: int | None
    vocab: int | None
    seq: int | None
    experts: int | None
    topk: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    dp: int | None
    zero: int | None
    micro_batch: int | None
    global_batch: int | None
    step_time_s: float | None
    interconnect: str = ""
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    sp: int | None = None
    optimizer: str = ""
    peak_mem_gib: float | None = None
    alloc_mem_gib: float | None = None
    oom: int | None = None
    metric_kind: str = ""
    stack: str = ""
    where: str = ""

    @property
    def source_name(self) -> str:
        """The source's short name: the id up to its last hyphen."""
        return self.id.rpartition("-")[0] or self.id or UNNAMED

    @property
    def seconds(self) -> float | None:
        """Seconds of a step, computed from tokens a second if need be."""
        if self.step_time_s is not None:
            return self.step_time_s
        if None in (self.tokens_per_s_per_gpu, self.gpus, self.global_batch, self.seq):
            return None
        rate = (self.tokens_per_s_per_gpu or 0.0) * (self.gpus or 0)
        return (self.global_batch or 0) * (self.seq or 0) / rate if rate else None


def is_memory_table(table: Path) -> bool:
    """True if a table has columns of peak memory."""
    return PEAK in next(_rows(table), [])


def _rows(table: Path) -> Iterator[list[str]]:
    """The rows of a table, column names first.

    Raises:
        InputError: it cannot be read as a table.
    """
    try:
        with (
            open_file(table, "a table of runs", MAX_TABLE_BYTES) as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
        ):
            yield from csv.reader(text)
    except InputError as error:
        raise InputError(f"--data {table}", error.given, error.allowed, error.nearest) from None
    except (UnicodeDecodeError, csv.Error, OSError):
        raise InputError(f"--data {table}", "no such text", "a CSV file in UTF-8") from None


class RunTable(NamedTuple):
    """The runs of a table, and why its other rows cannot be read."""

    runs: tuple[PublishedRun, ...]
    unreadable: tuple[InputError, ...]


@cache
def published_runs(table: Path = TABLE) -> tuple[PublishedRun, ...]:
    """Every run of a table.

    Raises:
        InputError: a row that cannot be read, by row and field.
    """
    runs, unreadable = read_runs(table)
    if unreadable:
        raise unreadable[0]
    return runs


def read_runs(table: Path) -> RunTable:
    """Runs of a table, without the rows that cannot be read.

    Raises:
        InputError: no table, or one without a column.
    """
    columns, *rows = [*_rows(table)] or [[]]
    absent = (TIME_COLUMNS if PEAK in columns else MEMORY_COLUMNS) + STACK_COLUMNS
    _check_columns(columns, absent, f"{table.name} line 1")
    runs: dict[str, PublishedRun] = {}
    unreadable: list[InputError] = []
    for number, row in enumerate(rows, start=2):
        where = f"{table.name} line {number}"
        try:
            if row:
                run = _row_run(columns, row, where, absent)
                run = run if run.id else replace(run, id=f"{UNNAMED}-{number}")
                if run.id in runs:
                    raise InputError(f"{where}: id", run.id, "an id that no other row has")
                runs[run.id] = run
        except InputError as error:
            unreadable.append(error)
    return RunTable(tuple(runs.values()), tuple(unreadable))


def _check_columns(columns: Sequence[str], absent: tuple[str, ...], where: str) -> None:
    missing = next((c for c in COLUMNS if c not in columns and c not in absent), None)
    if missing is not None:
        kind = "memory.csv" if PEAK in columns else "runs.csv"
        raise InputError(f"{where}: {missing}", "no such column", f"the columns of {kind}")


def _row_run(
    columns: Sequence[str], row: Sequence[str], where: str, absent: tuple[str, ...]
) -> PublishedRun:
    if len(row) != len(columns):
        raise InputError(where, f"{len(row)} cells", f"{len(columns)}, as the first line has")
    return _run(dict(zip(columns, row, strict=True)), where, absent)


COLUMNS = tuple(item.name for item in fields(PublishedRun))


def parse_run(row: Mapping[str, object], where: str) -> PublishedRun:
    """A run from a mapping of columns to values.

    Missing ones and None are blank.

    Raises:
        InputError: an unknown column, or an unreadable value.
    """
    unknown = next((name for name in row if name not in COLUMNS), None)
    if unknown is not None:
        allowed = "a column of runs.csv or memory.csv"
        raise InputError(f"{where}: {unknown}", "a value", allowed, nearest_name(unknown, COLUMNS))
    texts = {name: "" if value is None else str(value) for name, value in row.items()}
    return _run({**dict.fromkeys(COLUMNS, ""), **texts}, where, ())


def _run(row: Mapping[str, str | None], where: str, absent: tuple[str, ...]) -> PublishedRun:
    values: dict[str, object] = {}
    for item in fields(PublishedRun):
        text = row.get(item.name)
        if text is None and item.name in absent:
            continue
        if text is None:
            raise ValueError(f"a checked table has {item.name}")
        if item.name in TEXT_COLUMNS:
            values[item.name] = text.strip()
        elif item.name in NUMBER_COLUMNS:
            values[item.name] = _number(text, f"{where}: {item.name}")
        else:
            values[item.name] = _whole_number(text, f"{where}: {item.name}")
    return PublishedRun(**values)  # type: ignore[arg-type]


def _number(text: str, where: str) -> float | None:
    if not text.strip():
        return None
    try:
        number = float(text)
    except ValueError:
        raise InputError(where, text, "a number, or nothing") from None
    if not 0 < number < float("inf"):
        raise InputError(where, text, "a positive number, or nothing")
    return number


def _whole_number(text: str, where: str) -> int | None:
    text = text.partition("(")[0]  # "3 (FSDP)"
    number = _number(text, where) if text.strip() not in ("0", "0.0") else 0.0
    if number is None:
        return None
    if number != int(number):
        raise InputError(where, text, "a whole number, or nothing")
    return int(number)
