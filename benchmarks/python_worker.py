"""The part of :mod:`benchmarks.pythons` that runs on each interpreter: ``python -m benchmarks.python_worker FOLDER``.

It starts a controller and a node with this interpreter, and then answers each line of its input, a command, with a line
of JSON. Both processes end with the input. It needs Tidelog and the extras ``node`` and ``quorum`` alone.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import process
from benchmarks.engines import pure_engine
from benchmarks.workload import TIMESTAMP_MS
from tidelog.testing import LocalCluster
from tidelog_foundation.records import COMPILED, RecordBatchBuilder, inspect_produced, read_records

Answer = Mapping[str, object]

_VALUE = b"0123456789" * 10
_RECORDS = 1_000
_REPEATS = 5
_READY_TIMEOUT_S = 120.0
"""The first start of an interpreter compiles all modules to bytecode."""
_STOP_TIMEOUT_S = 30.0
_NANO = 1e9


def main() -> None:
    """Serve until the input ends."""
    with contextlib.closing(LocalCluster(1, 1, data_dir=Path(sys.argv[1]))) as cluster:
        cluster.start()
        cluster.wait_ready(_READY_TIMEOUT_S)
        commands: dict[str, Callable[[], Answer]] = {
            "describe": lambda: _describe(cluster),
            "restart": lambda: _restart(cluster),
            "engines": engines,
        }
        print(flush=True)
        for line in sys.stdin:
            print(json.dumps(commands[line.strip()]()), flush=True)


def _describe(cluster: LocalCluster) -> Answer:
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return {
        "version": platform.python_version() + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
        "has_pgo": "--enable-optimizations" in flags,
        "has_lto": "--with-lto" in flags,
        "compiled_engine": COMPILED,
        "bootstrap_servers": cluster.kafka_bootstrap_servers,
    }


def _restart(cluster: LocalCluster) -> Answer:
    """Stop the node and start it. The CPU time ends when it serves, its memory is that of this moment."""
    node = cluster.nodes[1]
    node.stop(_STOP_TIMEOUT_S)
    started = time.monotonic()
    node.start()
    cluster.wait_ready(_READY_TIMEOUT_S)
    seconds = time.monotonic() - started
    return {
        "pid": node.pid,
        "seconds": seconds,
        "cpu_s": process.cpu_seconds(node.pid),
        "resident_mb": process.resident_mb(node.pid),
    }


def engines() -> Answer:
    """Return the CPU time for each record by engine and work, in nanoseconds: the least of a few repeats."""
    found = {f"compiled {work}": ns for work, ns in _work().items()} if COMPILED else {}
    with pure_engine():
        return {**found, **{f"pure {work}": ns for work, ns in _work().items()}}


def _work() -> dict[str, float]:
    batch = _built()
    works: dict[str, Callable[[], object]] = {
        "build": _built,
        "check": lambda: inspect_produced(batch),
        "decode": lambda: read_records(batch),
    }
    return {name: min(_cpu_ns(work) for _ in range(_REPEATS)) / _RECORDS for name, work in works.items()}


def _built() -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(_RECORDS):
        builder.append(None, _VALUE, (), TIMESTAMP_MS)
    return builder.build()


def _cpu_ns(work: Callable[[], object]) -> float:
    before = time.process_time_ns()
    work()
    return time.process_time_ns() - before


if __name__ == "__main__":
    main()
