"""Replication: the write outage after a failure, the latency of a write, and the speed of a follower's catch-up.

The three parts can be run alone: :mod:`benchmarks.replication_failover`, :mod:`benchmarks.replication_latency` and
:mod:`benchmarks.replication_catch_up`. All use real processes: three controllers and three nodes on loopback.
"""

from __future__ import annotations

from benchmarks import replication_catch_up, replication_failover, replication_latency
from benchmarks.options import Options
from benchmarks.result import Result
from benchmarks.suite import run_alone


def run(options: Options) -> list[Result]:
    """Measure all three."""
    return [
        *replication_failover.run(options),
        *replication_latency.run(options),
        *replication_catch_up.run(options),
    ]


if __name__ == "__main__":
    run_alone(run)
