"""A client's requests to each node, counted for the statistics of ``stats_cb`` (librdkafka's STATISTICS.md)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.cluster.metadata import ClusterMetadata

_SAMPLES = 1_000
_QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_99": 0.9999}


@dataclass(slots=True)
class NodeTraffic:
    """The requests to one node; ``rtt_us`` holds the latest round trips."""

    tx: int = 0
    tx_bytes: int = 0
    tx_retries: int = 0
    rx: int = 0
    rx_bytes: int = 0
    tx_errors: int = 0
    waiting: int = 0
    rtt_us: deque[int] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def begin(self, size: int = 0) -> None:
        """Record the start of a request of ``size`` bytes."""
        self.tx += 1
        self.waiting += 1
        self.tx_bytes += size

    def end(self, began_s: float, *, failed: bool, size: int = 0) -> None:
        """Record the answer of ``size`` bytes to a request that began at ``began_s`` of the monotonic clock."""
        self.waiting = max(self.waiting - 1, 0)
        self.rtt_us.append(int((time.monotonic() - began_s) * 1e6))
        self.tx_errors += failed
        self.rx += not failed
        self.rx_bytes += size


def client_statistics(
    kind: str, client_id: str, started_s: float, nodes: Mapping[int, NodeTraffic], metadata: ClusterMetadata
) -> dict[str, Any]:
    """Return the first fields of every client's statistics, and ``brokers``."""
    now = time.monotonic()
    return {
        "name": f"{client_id}#{kind}",
        "client_id": client_id,
        "type": kind,
        "ts": int(now * 1e6),
        "time": int(time.time()),
        "age": int((now - started_s) * 1e6),
        "tx": sum(node.tx for node in nodes.values()),
        "tx_bytes": sum(node.tx_bytes for node in nodes.values()),
        "rx": sum(node.rx for node in nodes.values()),
        "rx_bytes": sum(node.rx_bytes for node in nodes.values()),
        "metadata_cache_cnt": len(metadata.topics),
        "brokers": _brokers(nodes, metadata),
    }


def _brokers(nodes: Mapping[int, NodeTraffic], metadata: ClusterMetadata) -> dict[str, Any]:
    return {
        f"{broker.address}/{node_id}": {
            "name": f"{broker.address}/{node_id}",
            "nodeid": int(node_id),
            "nodename": broker.address,
            "waitresp_cnt": node.waiting,
            "tx": node.tx,
            "txbytes": node.tx_bytes,
            "txerrs": node.tx_errors,
            "txretries": node.tx_retries,
            "rx": node.rx,
            "rxbytes": node.rx_bytes,
            "rtt": _window(sorted(node.rtt_us)),
        }
        for node_id, broker in metadata.brokers.items()
        for node in (nodes.get(node_id) or NodeTraffic(),)
    }


def _window(samples: list[int]) -> dict[str, int]:
    count = len(samples)
    if not count:
        return {"min": 0, "max": 0, "avg": 0, "sum": 0, "cnt": 0}
    ends = {"min": samples[0], "max": samples[-1], "avg": sum(samples) // count, "sum": sum(samples), "cnt": count}
    return {**ends, **{name: samples[min(int(count * share), count - 1)] for name, share in _QUANTILES.items()}}
