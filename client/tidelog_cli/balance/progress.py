"""The progress of moves: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from tidelog_cli.options.connection import Session
from tidelog_cli.output.printing import counted

_LINE_PAUSE_S = 5.0


class MoveProgress:
    """Shows moves and bytes of a reassignment while its context is open."""

    def __init__(self, session: Session, total_bytes: int) -> None:
        self._session = session
        self._total_bytes = total_bytes
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("moves", total=max(total_bytes, 1))
        self._told, self._told_s = "", 0.0

    def __enter__(self) -> MoveProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, under_way: int, waiting: int, copied_bytes: int) -> None:
        """Show the number of moves in each state, and the bytes copied so far."""
        if not under_way and not waiting:
            return
        text = f"{counted(done, 'move')} done, {under_way} in progress, {waiting} waiting"
        if self._bar is not None:
            self._bar.update(self._task, completed=copied_bytes, total=max(self._total_bytes, 1), description=text)
            return
        text += f"; {copied_bytes:,} of {self._total_bytes:,} bytes"
        now_s = time.monotonic()
        if text != self._told and now_s - self._told_s >= _LINE_PAUSE_S:
            self._told, self._told_s = text, now_s
            self._session.say(text)
