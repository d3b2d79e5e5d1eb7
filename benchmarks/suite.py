"""The benchmark runner: it finds the benchmarks, runs them one by one and shows their progress."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

import benchmarks
from benchmarks.machine import facts
from benchmarks.options import Options
from benchmarks.result import Result
from benchmarks.table import make_console, print_results, write_results

Run = Callable[[Options], list[Result]]

LATEST = Path(__file__).parent / "results" / "latest.json"
_SUFFIX = "_bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested benchmarks. Return 0 if every one finished, whatever the bars say."""
    names = benchmark_names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Tidelog.")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"run these alone: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds: rough figures in a minute")
    parser.add_argument(
        "--output", type=Path, default=LATEST, help="the JSON file (default: benchmarks/results/latest.json)"
    )
    parsed = parser.parse_args(arguments)
    console = make_console()
    groups, failed = _run_all(console, [name for name in names if name in (parsed.only or names)], parsed.quick)
    if groups:
        print_results(console, groups)
        write_results(parsed.output, facts(quick=parsed.quick), [result for results in groups for result in results])
    if failed:
        console.print(f"[bold red]did not finish: {', '.join(failed)}[/]")
    return 1 if failed else 0


def run_alone(run: Run) -> None:
    """Run one benchmark from its own file, with a table and without JSON."""
    parser = argparse.ArgumentParser(description=run.__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    quick = parser.parse_args().quick
    console = make_console()
    with console.status("starting") as status:
        results = run(Options(quick=quick, say=_teller(status)))
    print_results(console, [results])


def benchmark_names() -> list[str]:
    """Return the names of the benchmarks in this package without their suffix."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))


def _run_all(console: Console, names: Sequence[str], quick: bool) -> tuple[list[list[Result]], list[str]]:
    groups: list[list[Result]] = []
    failed: list[str] = []
    for index, name in enumerate(names, start=1):
        started = time.monotonic()
        try:
            with console.status(f"{name}: starting") as status:
                run: Run = importlib.import_module(f"benchmarks.{name}{_SUFFIX}").run
                found = run(Options(quick=quick, say=_teller(status, name)))
        except Exception:  # noqa: BLE001 the other benchmarks are still worth running
            console.print_exception(extra_lines=0, max_frames=8)
            failed.append(name)
            outcome = "[bold red]failed[/]"
        else:
            groups.append(found)
            outcome = f"{len(found)} results"
        console.print(f"[{index}/{len(names)}] {name:<12} {outcome} after {time.monotonic() - started:.0f} s")
    return groups, failed


def _teller(status: Status, name: str = "") -> Callable[[str], None]:
    return lambda text: status.update(escape(f"{name}: {text}" if name else text))
