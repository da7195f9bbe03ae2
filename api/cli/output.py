"""Results to terminals and files, progress to standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def check_targets(**targets: str | None) -> None:
    """Refuse files that cannot be written, before any work.

    Args:
        targets: flag name (``_`` for ``-``) to its path; None and ``-`` pass.

    Raises:
        InputError: the path is a folder, is not in a writable one, or is named twice.
    """
    seen: dict[Path, str] = {}
    for name, target in targets.items():
        if target is None or target == "-":
            continue
        path, flag = Path(target).expanduser(), f"--{name.replace('_', '-')}"
        other = seen.setdefault(path.resolve(), flag)
        if other != flag:
            raise InputError(flag, target, f"another file than {other} writes")
        if path.is_dir():
            raise InputError(flag, target, "a file, not a folder", str(Path(target) / "plan.json"))
        if path.exists() and not path.is_file():
            raise InputError(flag, target, "a plain file; - prints the result", "-")
        if not path.parent.is_dir():
            raise InputError(flag, target, "a file in a folder that exists")
        if not os.access(path.parent, os.W_OK):
            raise InputError(flag, target, "a file in a folder that may be written")


def write_file(target: str, content: str | bytes) -> None:
    """Write ``content`` to a file atomically."""
    from ...spec.codec import write_atomically

    write_atomically(Path(target).expanduser(), content)


def emit(
    document: dict[str, Any], json_target: str | None, show: Callable[[Console], None]
) -> None:
    """Write the JSON document, and show the result on a terminal.

    With ``-`` only the document goes to standard output.
    """
    from ...spec.codec import dump_pretty
    from ...spec.report.report import LEADING_KEYS

    if json_target == "-":
        sys.stdout.write(dump_pretty(document, LEADING_KEYS))
        sys.stdout.flush()
        return
    if json_target is not None:
        write_file(json_target, dump_pretty(document, LEADING_KEYS))
    from ..terminal.console import console

    if sys.stdout.isatty():
        show(console())
    else:
        text = io.StringIO()
        show(console(text))
        lines = "\n".join(line.rstrip() for line in text.getvalue().split("\n"))
        sys.stdout.write(lines.translate(_spelling()))
    sys.stdout.flush()


def _spelling() -> dict[int, str]:
    encoding = (sys.stdout.encoding or "").casefold()
    return {} if encoding.startswith("utf") else {ord("±"): "+-", ord("…"): "..."}


def note(text: str) -> None:
    """Write a printable line to standard error, never part of a result."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


class ProgressLine:
    """Progress bar on a standard-error terminal, silent elsewhere."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> ProgressLine:
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            return self
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        from ..terminal.console import console

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(f"{self._unit}  {{task.fields[state]}}"),
            Elapsed(),
            console=console(sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=None, state="")
        self._bar.start()
        return self

    @property
    def is_shown(self) -> bool:
        """True while there is a bar."""
        return self._bar is not None

    def __call__(self, done: int, total: int | None, state: str) -> None:
        """Show ``done`` of ``total``, and a state."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, state=state)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
