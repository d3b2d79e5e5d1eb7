"""Shows the progress of a run: a bar on a terminal, and otherwise a line for each fault."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_CALM = "no fault"


class RunProgress:
    """A context manager that shows the progress of a run. Any thread may call :meth:`note`."""

    def __init__(self, console: Console, duration_s: float) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.fields[phase]}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("[yellow]{task.fields[faults]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=duration_s, phase="starting", rate="", faults="")

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def phase(self, name: str) -> None:
        """Show the current phase of the run."""
        self._progress.update(self._task, phase=name, faults="")
        if not self._console.is_terminal:
            self._console.print(name, highlight=False)

    def update(self, elapsed_s: float, ok_per_s: int, faults: list[str]) -> None:
        """Show the progress and the active faults."""
        text = "; ".join(faults) or _CALM
        self._progress.update(self._task, completed=elapsed_s, rate=f"{ok_per_s:>5} ok/s", faults=text)

    def note(self, time_s: float, f: str, value: Any) -> None:
        """Print the start of a fault."""
        verb, _, fault = f.partition("-")
        if verb in ("start", "skip") and isinstance(value, dict):
            reason = value.get("error", "nobody to hit now")
            what = value.get("what") or f"no {fault} ({value.get('kind')}): {reason}"
            self._progress.console.print(f"  {time_s:7.1f} s  {what}", highlight=False, markup=False)
