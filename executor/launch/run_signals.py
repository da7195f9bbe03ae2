"""Signals to a launcher while its ranks train: stop after a step, suspend and continue.

The ranks are in sessions of their own, so a terminal's Ctrl-C and Ctrl-Z reach the launcher alone.
Handlers only take notes; the launcher's loop acts on them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SHOW_CURSOR = "\x1b[?25h"
STOPPING = "stopping after this step, and saving if --checkpoint is given; again to end at once"


class RunSignals:
    """Ctrl-C, SIGTERM, SIGHUP, SIGQUIT and Ctrl-Z of a run, as requests to its ranks.

    Only a process's main thread takes signals; one that is ignored, or that the caller handles, is
    left alone. Before the first step, and at the second time, a stop raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.has_stepped = False
        self.stop: signal.Signals | None = None
        self._suspends = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> RunSignals:
        if threading.current_thread() is threading.main_thread():
            self._take(signal.SIGINT, signal.default_int_handler, self._on_stop)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                self._take(number, signal.SIG_DFL, self._on_stop)
            self._take(signal.SIGTSTP, signal.SIG_DFL, self._on_suspend)
        return self

    def _take(self, number: signal.Signals, usual: object, handler: Any) -> None:
        if signal.getsignal(number) == usual:
            self._before[number] = signal.signal(number, handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self.stop is not None or not self.has_stepped:
            raise KeyboardInterrupt
        self.stop = signal.Signals(number)

    def _on_suspend(self, number: int, frame: FrameType | None) -> None:
        self._suspends = True

    def take_suspension(self) -> bool:
        """True once after each Ctrl-Z."""
        asked, self._suspends = self._suspends, False
        return asked

    def suspend(self) -> None:
        """Suspend this process, as Ctrl-Z does; return when it is continued."""
        if sys.stderr.isatty():  # a progress bar has hidden the shell's cursor
            sys.stderr.write(SHOW_CURSOR)
            sys.stderr.flush()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
