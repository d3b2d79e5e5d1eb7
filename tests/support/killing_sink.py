"""A data source whose sink kills a process with SIGKILL at a step that a file names.

The file has the victim, the command, and ``before`` or ``after`` it. The victim is ``process``, the Python process that
does the step, ``executor``, the JVM that has started it, or the id of another process. The file is removed first: only
one process is killed.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from tidelog import Producer
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.sink.execution import Execution
from tidelog_spark.sink.options import sink_plan
from tidelog_spark.sink.protocol import Command, Result
from tidelog_spark.sink.writer import TidelogStreamWriter


class KillingExecution(Execution):
    """Kills at the step of the file."""

    order: Path

    def execute(self, command: Command) -> Result:
        name = type(command).__name__
        self._kill(f"{name} before")
        result = super().execute(command)
        self._kill(f"{name} after")
        return result

    def _kill(self, step: str) -> None:
        try:
            victim, _, ordered = self.order.read_text().partition(" ")
            if ordered != step:
                return
            self.order.unlink()
        except FileNotFoundError:
            return
        for pid in _pids(victim):
            os.kill(pid, signal.SIGKILL)


def executor_pid() -> int:
    """Return the id of the JVM of a task's Python process, whose parent is the daemon that forks for the JVM."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(re.findall(r"^PPid:\s*(\d+)$", status, re.MULTILINE)[0])


def _pids(victim: str) -> list[int]:
    named = {"process": os.getpid, "executor": executor_pid}
    return [named[victim]()] if victim in named else [int(pid) for pid in victim.split(",")]


class KillingWriter(TidelogStreamWriter):
    """The writer of streams with `KillingExecution`."""

    def __init__(self, order: str, *more: Any) -> None:
        super().__init__(*more)
        self._order = order

    def _execution(self, sink: str, write: Callable[[Producer], None] | None = None) -> Execution:
        execution = KillingExecution(self._plan, sink, is_single=self._is_single, write=write)
        execution.order = Path(self._order)
        return execution


class KillingDataSource(TidelogDataSource):
    """``format("killing")``: its sink has the further option ``kill.order``."""

    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingWriter:
        raw = {key: value for key, value in self._raw.items() if key != "kill.order"}
        return KillingWriter(self._raw["kill.order"], sink_plan(raw), schema, overwrite)
