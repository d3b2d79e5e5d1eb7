"""The duration of ``import tidelog``, and the dependencies that the SDK installs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks.options import Options
from benchmarks.result import Bar, Result

_IMPORT = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
_GIVEN = ("grpcio", "protobuf")


def run(options: Options) -> list[Result]:
    """Measure imports in new processes."""
    options.say("import")
    rounds = options.pick(15, 5)
    small = [name for name in _requirements() if name not in _GIVEN]
    return [
        Result("import tidelog", _import_ms("import tidelog", rounds), "ms", bar=Bar.on_value(at_most=150)),
        Result(
            "import tidelog, Producer and Consumer", _import_ms("from tidelog import Producer, Consumer", rounds), "ms"
        ),
        Result("import grpc.aio alone", _import_ms("import grpc.aio", rounds), "ms"),
        Result(
            f"packages beside grpcio and protobuf: {', '.join(small)}",
            len(small),
            "packages",
            bar=Bar.on_value(at_most=4),
        ),
    ]


def _import_ms(statement: str, rounds: int) -> float:
    program = [sys.executable, "-c", _IMPORT.format(statement)]
    times = [float(subprocess.run(program, capture_output=True, check=True).stdout) for _ in range(rounds)]
    return statistics.median(times) * 1e3


def _requirements() -> list[str]:
    """Return the project's dependencies without extras."""
    pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    return sorted(requirement.partition(">")[0] for requirement in pyproject["project"]["dependencies"])
