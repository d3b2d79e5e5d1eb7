"""The delay and the CPU time of an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric

_INTERVAL_S: Final = 0.1
_NANOSECONDS: Final = 1_000_000_000

DELAY: Final = Metric(
    "tidelog_event_loop_delay_seconds",
    Kind.HISTOGRAM,
    "The time by which the event loop runs a timer late, measured ten times per second.",
    unit="seconds",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CPU: Final = Metric(
    "tidelog_event_loop_cpu_seconds_total",
    Kind.COUNTER,
    "The CPU time of the thread of the event loop. Its rate is the share of time in which the loop is busy.",
    unit="seconds",
    kafka=(
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent (1 minus the rate)",
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent (1 minus the rate)",
    ),
)
TASKS: Final = Metric("tidelog_event_loop_tasks", Kind.GAUGE, "The tasks of the event loop that have not ended.")
METRICS: Final = (DELAY, CPU, TASKS)


class EventLoopProbe:
    """Measures the event loop that it runs on."""

    def __init__(self) -> None:
        self._delay = DELAY.histogram()

    async def run(self) -> None:
        """Measure the delay of timers, until cancelled."""
        while True:
            due_ns = time.monotonic_ns() + int(_INTERVAL_S * _NANOSECONDS)
            await asyncio.sleep(_INTERVAL_S)
            self._delay.observe(max(0, time.monotonic_ns() - due_ns))

    def families(self) -> Iterable[Family]:
        """Return the current values. It is called on the event loop."""
        yield DELAY.of(self._delay.snapshot())
        yield CPU.of(time.thread_time())
        yield TASKS.of(len(asyncio.all_tasks()))
