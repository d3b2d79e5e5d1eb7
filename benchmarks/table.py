"""The results as an aligned table and as a JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import Facts
from benchmarks.result import Result

_WIDTH_WITHOUT_TERMINAL = 140


def make_console() -> Console:
    """Return a console that does not wrap the table if the output goes to a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def print_results(console: Console, groups: Sequence[Sequence[Result]]) -> None:
    """Print one table of all results, and a last line that counts the bars."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("compared with")
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("bar", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    for index, results in enumerate(groups):
        if index:
            table.add_row()
        for result in results:
            table.add_row(*_cells(result))
    console.print(table)
    console.print(verdict([result for results in groups for result in results]))


def verdict(results: Sequence[Result]) -> str:
    """Return the line that counts the bars."""
    held = [result.holds for result in results if result.holds is not None]
    missed = [result.name for result in results if result.holds is False]
    text = f"{len(results)} results, {sum(held)} of {len(held)} bars hold"
    return f"{text}; not: {', '.join(missed)}" if missed else text


def write_results(path: Path, machine: Facts, results: Sequence[Result]) -> None:
    """Write the machine's facts and all rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "results": [result.row() for result in results]}
    path.write_text(json.dumps(document, indent=2) + "\n")


def format_value(value: float) -> str:
    """Return a figure with three significant digits, or all digits of a whole number, with thousands separators."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _cells(result: Result) -> tuple[str, ...]:
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    compared_with, bar = result.compared_with or "", result.bar_text or ""
    return result.name, format_value(result.value), result.unit, compared_with, ratio, bar, _holds(result.holds)


def _holds(holds: bool | None) -> str:
    return {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}[holds]
