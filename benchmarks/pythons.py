"""Versions of Python next to one another: ``python -m benchmarks.pythons PYTHON PYTHON ... [--quick]``.

Each PYTHON is the path of an interpreter that has Tidelog installed with the extras ``node`` and ``quorum``. The first
one is the reference of the others. Each runs a controller and a node of its own, all at the same time; the work is done
in turns. The client is a compiled program, ``benchmarks/peers/load_client``, so that the figures are those of the node.

The figures are CPU times, which other work of the machine changes less than it changes elapsed times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import process
from benchmarks.machine import facts
from benchmarks.options import Options
from benchmarks.peers.client import Topics
from benchmarks.peers.comparison import ratio_of
from benchmarks.peers.load_client import LoadClient
from benchmarks.peers.peer import Memory
from benchmarks.result import Result
from benchmarks.rounds import in_turns
from benchmarks.table import format_value, make_console, print_results, write_results

RESULTS: Final = Path(__file__).parent / "results" / "pythons.json"

_REPOSITORY: Final = Path(__file__).parent.parent
_SMALL, _LARGE = "small", "large"
_CONNECTIONS: Final = 100
_SMALL_BYTES, _LARGE_BYTES = 100, 1024
_PARTITIONS: Final = 3
_WARM_UP: Final = 2
_MICRO: Final = 1e6
_GIGA: Final = 1e9

Figures = Mapping[str, Sequence[float]]
"""The figure of each round by interpreter."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print one table and write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pythons", description="Compare versions of Python.")
    parser.add_argument("pythons", nargs="+", type=Path, metavar="PYTHON", help="an interpreter that has Tidelog")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: rough figures in a minute")
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"the JSON file (default: results/{RESULTS.name})")
    parsed = parser.parse_args(arguments)
    console = make_console()
    with console.status("starting") as status:
        options = Options(quick=parsed.quick, say=status.update)
        with started(parsed.pythons, options) as interpreters:
            about = ", ".join(interpreter.description for interpreter in interpreters)
            results = measure(interpreters, options)
    print_results(console, [results])
    console.print(about)
    write_results(parsed.output, {**facts(quick=parsed.quick), "pythons": about}, results)


@dataclass(slots=True)
class Interpreter:
    """An interpreter with its node, which is a target of the load client."""

    worker: subprocess.Popen[str]
    path: Path
    name: str = ""
    description: str = ""
    bootstrap_servers: str = ""
    node_pid: int = 0

    def describe(self) -> None:
        """Ask the worker for the interpreter's version, its build and the addresses of its node."""
        answer = self.ask("describe")
        self.name = f"Python {answer['version']}"
        options = [text for key, text in (("has_pgo", "PGO"), ("has_lto", "LTO")) if answer[key]]
        build = f"with {' and '.join(options)}" if options else "without PGO or LTO"
        engine = "" if answer["compiled_engine"] else ", record engine in Python"
        self.description = f"{answer['version']} (configured {build}{engine})"
        self.bootstrap_servers = answer["bootstrap_servers"]

    def ask(self, command: str) -> dict[str, Any]:
        """Send the worker a command and return its answer.

        Raises:
            RuntimeError: The worker has ended.
        """
        assert self.worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.worker.stdin.write(f"{command}\n")
            self.worker.stdin.flush()
        answer = json.loads(self.read())
        assert isinstance(answer, dict)
        return answer

    def read(self) -> str:
        """Return the worker's next line. Raise RuntimeError if it has ended."""
        assert self.worker.stdout is not None
        line = self.worker.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.path} has ended")
        return line

    def restart(self) -> dict[str, Any]:
        """Start the node anew, and return the cost of the start."""
        answer = self.ask("restart")
        self.node_pid = answer["pid"]
        return answer

    def pids(self) -> Mapping[str, int]:
        """Return the id of the node's process."""
        return {self.name: self.node_pid}

    def memory(self) -> Memory:
        """Return the memory of the node."""
        return Memory(process.resident_mb(self.node_pid), process.proportional_mb(self.node_pid))


@contextlib.contextmanager
def started(pythons: Sequence[Path], options: Options) -> Iterator[list[Interpreter]]:
    """Start a worker on each interpreter, and end them all afterwards.

    Raises:
        RuntimeError: A worker did not start.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(options.scratch())
        interpreters = []
        for number, python in enumerate(pythons):
            options.say(f"starting {python}")
            interpreter = Interpreter(stack.enter_context(_worker(python, folder / str(number))), python)
            interpreter.read()
            interpreter.describe()
            interpreters.append(interpreter)
        name_apart(interpreters)
        yield interpreters


def measure(interpreters: Sequence[Interpreter], options: Options) -> list[Result]:
    """Measure starts first, since the logs that the other parts fill would lengthen them."""
    return [
        *_starts(interpreters, options),
        *_requests(interpreters, options),
        *_records(interpreters, options),
        *_engines(interpreters, options),
    ]


def compared(name: str, unit: str, figures: Figures) -> list[Result]:
    """Return a line for each interpreter but the first, which is compared with the first. Less is better.

    The only interpreter has a line of its own.
    """
    (reference, base), *others = figures.items()
    if not others:
        return [Result(f"{reference}: {name}", statistics.median(base), unit)]
    against = f"{reference} at {format_value(statistics.median(base))}"
    return [
        Result(f"{label}: {name}", statistics.median(found), unit, against, ratio_of(found, base, "lower"))
        for label, found in others
    ]


def name_apart(interpreters: Sequence[Interpreter]) -> None:
    """Number the interpreters of the same version."""
    names = [interpreter.name for interpreter in interpreters]
    for index, interpreter in enumerate(interpreters):
        if names.count(interpreter.name) > 1:
            interpreter.name = f"{interpreter.name} no. {index + 1}"


@contextlib.contextmanager
def _worker(python: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a worker, and end it by the end of its input."""
    command: list[str | Path] = [python, "-m", "benchmarks.python_worker", folder]
    # A path to the modules of one version would hide those that the others have installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=_REPOSITORY, env=environment)
    try:
        yield worker
    finally:
        worker.communicate()


def _starts(interpreters: Sequence[Interpreter], options: Options) -> list[Result]:
    options.say("starts of the node")
    works = {each.name: each.restart for each in interpreters}
    found = in_turns(works, options.pick(7, 2))
    return [
        line
        for key, name, unit in (
            ("cpu_s", "start of a node, CPU", "s"),
            ("seconds", "start of a node, until it serves", "s"),
            ("resident_mb", "memory of an idle node, resident", "MB"),
        )
        for line in compared(name, unit, {label: [one[key] for one in rounds] for label, rounds in found.items()})
    ]


def _requests(interpreters: Sequence[Interpreter], options: Options) -> list[Result]:
    count = options.pick(10_000, 3_000)
    flags = {"topic": _SMALL, "clients": _CONNECTIONS, "acks": -1, "requests": count, "bytes": _SMALL_BYTES}
    name = f"produce request of {_SMALL_BYTES} B, {_CONNECTIONS} connections, acks=all: CPU of the node"
    _create_topics(interpreters, _SMALL)
    used = _loaded(interpreters, options, LoadClient(), "requests", flags)
    return compared(name, "µs", {label: [_MICRO * cpu / count for cpu in rounds] for label, rounds in used.items()})


def _records(interpreters: Sequence[Interpreter], options: Options) -> list[Result]:
    """Produce records, and read all of them in each round."""
    count = options.pick(100_000, 50_000)
    rounds = _rounds(options)
    sent = {"topic": _LARGE, "records": count, "bytes": _LARGE_BYTES, "seconds": 60}
    kept = count * (rounds + _WARM_UP)
    client = LoadClient()
    _create_topics(interpreters, _LARGE)
    results = []
    for name, command, flags, records in (
        ("produce", "produce", sent, count),
        ("consume", "read", {"topic": _LARGE, "records": kept}, kept),
    ):
        used = _loaded(interpreters, options, client, command, flags)
        gigabytes = records * _LARGE_BYTES / _GIGA
        figures = {label: [cpu / gigabytes for cpu in each] for label, each in used.items()}
        results += compared(f"{name} records of 1 KiB: CPU of the node", "s/GB", figures)
    return results


def _engines(interpreters: Sequence[Interpreter], options: Options) -> list[Result]:
    options.say("the record engines")
    found = in_turns({each.name: partial(each.ask, "engines") for each in interpreters}, options.pick(15, 3))
    works = [key for key in found[interpreters[0].name][0] if all(key in rounds[0] for rounds in found.values())]
    return [
        line
        for key in works
        for line in compared(
            f"{key}, a record of 100 B", "ns", {label: [one[key] for one in rounds] for label, rounds in found.items()}
        )
    ]


def _rounds(options: Options) -> int:
    return options.pick(11, 3)


def _loaded(
    interpreters: Sequence[Interpreter], options: Options, client: LoadClient, command: str, flags: Mapping[str, object]
) -> dict[str, list[float]]:
    """Run a command of the load client on each node in turns, and return the CPU seconds of the nodes."""

    def run(interpreter: Interpreter) -> float:
        options.say(f"{command} on {interpreter.name}")
        before = process.run_seconds(interpreter.node_pid)
        client.run(interpreter, command, flags)
        return process.run_seconds(interpreter.node_pid) - before

    works: dict[str, Callable[[], float]] = {each.name: partial(run, each) for each in interpreters}
    return in_turns(works, _rounds(options), _WARM_UP)


def _create_topics(interpreters: Sequence[Interpreter], topic: str) -> None:
    for interpreter in interpreters:
        topics = Topics(interpreter.bootstrap_servers)
        topics.create(topic, _PARTITIONS, 1)
        topics.wait_whole(topic)


if __name__ == "__main__":
    main()
