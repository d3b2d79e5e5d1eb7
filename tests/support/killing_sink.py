"""A data source whose sink kills a process with SIGKILL at a step that a file names.

The file has the victim (``process`` for the Python process that does the step, or the id of another process), the
command, and ``before`` or ``after`` it. It is removed first: only one process is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from tidelog import Producer
from tidelog_spark.sink.execution import Execution
from tidelog_spark.sink.options import sink_plan
from tidelog_spark.sink.protocol import Command, Result
from tidelog_spark.sink.writer import TidelogStreamWriter
from tidelog_spark.source import TidelogDataSource


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
        pids = [os.getpid()] if victim == "process" else [int(pid) for pid in victim.split(",")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


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
