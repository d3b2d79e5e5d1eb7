"""The query that copies topics, as processes that are killed and started again with the same checkpoint."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tidelog_chaos.workload.spark.checkpoint import committed_batch
from tidelog_chaos.workload.spark.processes import SparkProcesses

_WRONG_SETTINGS = 2
_MASTER = "local[2,8]"
"""Tasks whose worker is killed are repeated; in a plain ``local`` they would fail their query."""
_CONFIG = {
    # A run lasts for minutes: compiling rarely used code would cost more than it saves.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


class CopyQuery:
    """At most one start of the query at a time. Used on one thread."""

    program: ClassVar[Path] = Path(__file__).with_name("copy_program.py")

    def __init__(
        self,
        folder: Path,
        servers: Mapping[str, str],
        copies: Mapping[str, str],
        source: Mapping[str, str],
    ) -> None:
        """``copies`` has the output topic of each input topic, ``source`` further options for reading."""
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        self._failure = folder / "failure"
        self._settings: Mapping[str, Any] = {
            "servers": dict(servers),
            "copies": dict(copies),
            "checkpoint": str(self._checkpoint),
            "source": dict(source),
            "config": _CONFIG,
            "master": _MASTER,
            "failure": str(self._failure),
        }
        self._processes: SparkProcesses | None = None
        self._former: list[SparkProcesses] = []

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self._processes is not None and self._processes.exit_code is None

    @property
    def is_hopeless(self) -> bool:
        """Whether the last start ended because of its settings, so that another one would as well."""
        return self._processes is not None and self._processes.exit_code == _WRONG_SETTINGS

    def position(self) -> tuple[int, dict[str, int]]:
        """Return the last committed batch and its end in each input partition."""
        return committed_batch(self._checkpoint)

    def start(self) -> None:
        """Start the program. Workers of a driver that was killed may still run, until they notice."""
        assert not self.is_running
        if self._processes is not None:
            self._former.append(self._processes)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._failure.unlink(missing_ok=True)
        environment = {"GRPC_VERBOSITY": "NONE"}
        self._processes = SparkProcesses(self.program, self._settings, self._folder / "process.log", environment)

    def kill(self, kind: str, dice: random.Random) -> int:
        """Kill processes of a kind of :data:`~.processes.KILLS`, and return their number."""
        return 0 if self._processes is None else self._processes.kill(kind, dice)

    def failure(self) -> str:
        """Return how the last start ended."""
        assert self._processes is not None
        if self._failure.exists():
            return self._failure.read_text()
        return f"exit code {self._processes.exit_code}"

    def end(self) -> None:
        """Kill all processes of all starts."""
        for processes in (*self._former, *([] if self._processes is None else [self._processes])):
            processes.end()
        self._former.clear()
