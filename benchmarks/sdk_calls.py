"""The cost of a ``produce()`` call to the calling thread, compared with confluent-kafka's.

A round makes some ten thousand calls and then waits for the acknowledgements. Only the calls are counted, but the
concurrent sending in the background uses its share of the machine. Both sides send to one partition with default
settings; Tidelog sends to a real node in a process of its own, confluent-kafka to threads of its own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate
from benchmarks.sdk_peer import PEER, PeerCluster
from tidelog.producer import Producer

_TOPIC = "calls"


def run(options: Options, bootstrap_servers: str) -> list[Result]:
    """Measure calls with small and large values, with and without a callback."""
    peer = PeerCluster()
    results = []
    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        for size, calls in ((100, options.pick(50_000, 20_000)), (1024, options.pick(20_000, 10_000))):
            for report in (None, _report):
                name = f"produce() of {size} bytes, {'with' if report else 'no'} callback"
                options.say(name)
                ours, theirs = (_calls(each, size, calls, report) for each in (producer, peer.producer))
                taken = alternate({"ours": ours, PEER: theirs}, options.pick(25, 7), warm_up=2)
                ratio, cost_ns = taken.speed_ratio("ours", PEER), taken.median("ours") / calls * 1e9
                results.append(Result(name, cost_ns, "ns a call", PEER, ratio, Bar.on_ratio(at_least=1)))
    peer.close()
    return results


def _report(error: object, message: object) -> None:
    assert error is None, error


def _calls(producer: Any, size: int, count: int, report: Callable[..., None] | None) -> Callable[[], float]:
    value = bytes(size)
    produce = producer.produce

    def plain() -> float:
        started = time.perf_counter()
        for _ in range(count):
            produce(_TOPIC, value, partition=0)
        taken = time.perf_counter() - started
        assert producer.flush(60) == 0
        return taken

    def reported() -> float:
        started = time.perf_counter()
        for _ in range(count):
            produce(_TOPIC, value, partition=0, on_delivery=report)
        taken = time.perf_counter() - started
        assert producer.flush(60) == 0
        return taken

    return plain if report is None else reported
