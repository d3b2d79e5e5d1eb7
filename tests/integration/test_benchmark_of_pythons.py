"""The benchmark of Python versions runs a node on each interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import process
from benchmarks.options import Options
from benchmarks.pythons import started

pytestmark = [pytest.mark.costly, pytest.mark.slow]


def test_worker_starts_its_node_anew_and_ends_it_with_the_benchmark() -> None:
    with started([Path(sys.executable)], Options()) as [interpreter]:
        starts = [interpreter.restart() for _ in range(2)]
        resident = interpreter.memory().resident

        assert interpreter.name == f"Python {sys.version.split()[0]}"
        assert starts[0]["pid"] != starts[1]["pid"] == interpreter.node_pid
        assert all(start["seconds"] > 0 and start["cpu_s"] > 0 for start in starts)
        assert resident > 0

    with pytest.raises(FileNotFoundError):
        process.cpu_seconds(interpreter.node_pid)
