"""What ``stats_cb`` gets: librdkafka's statistics (STATISTICS.md), those fields of them that a producer here has.

``Tally`` counts on the network thread; the text is made there too, every ``statistics.interval.ms``.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.cluster import ClusterMetadata
from tidelog.producer.config import ProducerConfig
from tidelog.producer.core import Accumulator, Batch, BatchAcknowledged, BatchFailed
from tidelog.producer.core.partition_queue import PartitionQueue

_SAMPLES = 1_000
_QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_99": 0.9999}


@dataclass(slots=True)
class _Node:
    """The requests to one node; ``rtt_us`` are the latest round trips."""

    tx: int = 0
    tx_bytes: int = 0
    tx_retries: int = 0
    rx: int = 0
    tx_errors: int = 0
    waiting: int = 0
    rtt_us: deque[int] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


class Tally:
    """Counts what a producer sends. On the network thread."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.nodes: defaultdict[int, _Node] = defaultdict(_Node)
        self.sent: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def begin(self, node_id: int, batches: Iterable[Batch], encoded: Iterable[bytes]) -> None:
        """Note a request that leaves now."""
        node = self.nodes[node_id]
        node.tx += 1
        node.waiting += 1
        node.tx_bytes += sum(map(len, encoded))
        node.tx_retries += any(batch.attempts for batch in batches)

    def end(
        self, node_id: int, began_s: float, batches: Iterable[Batch], events: Iterable[BatchAcknowledged | BatchFailed]
    ) -> None:
        """Note its answer."""
        node = self.nodes[node_id]
        node.waiting = max(node.waiting - 1, 0)
        node.rtt_us.append(int((time.monotonic() - began_s) * 1e6))
        failed = False
        for batch, event in zip(batches, events, strict=True):
            if isinstance(event, BatchAcknowledged):
                counts = self.sent[batch.topic, batch.partition]
                counts[0] += batch.count
                counts[1] += batch.payload_bytes
            else:
                failed = True
        node.tx_errors += failed
        node.rx += not failed


def statistics_json(
    config: ProducerConfig, tally: Tally, accumulator: Accumulator, metadata: ClusterMetadata, replies: int
) -> str:
    """Return the statistics as JSON; the caller holds the accumulator's lock."""
    now = time.monotonic()
    messages = sum(count for count, _ in tally.sent.values())
    payload = sum(size for _, size in tally.sent.values())
    nodes = tally.nodes.values()
    return json.dumps(
        {
            "name": f"{config.client_id}#producer",
            "client_id": config.client_id,
            "type": "producer",
            "ts": int(now * 1e6),
            "time": int(time.time()),
            "age": int((now - tally.started) * 1e6),
            "replyq": replies,
            "msg_cnt": len(accumulator),
            "msg_size": accumulator.payload_bytes,
            "msg_max": config.queue_buffering_max_messages,
            "msg_size_max": config.buffer_bytes,
            "tx": sum(node.tx for node in nodes),
            "tx_bytes": sum(node.tx_bytes for node in nodes),
            "rx": sum(node.rx for node in nodes),
            "txmsgs": messages,
            "txmsg_bytes": payload,
            "metadata_cache_cnt": len(metadata.topics),
            "brokers": _brokers(tally, metadata),
            "topics": _topics(tally, accumulator, metadata),
        }
    )


def _brokers(tally: Tally, metadata: ClusterMetadata) -> dict[str, Any]:
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
            "rtt": _window(sorted(node.rtt_us)),
        }
        for node_id, broker in metadata.brokers.items()
        for node in (tally.nodes[node_id],)
    }


def _window(samples: list[int]) -> dict[str, int]:
    count = len(samples)
    if not count:
        return {"min": 0, "max": 0, "avg": 0, "sum": 0, "cnt": 0}
    ends = {"min": samples[0], "max": samples[-1], "avg": sum(samples) // count, "sum": sum(samples), "cnt": count}
    return {**ends, **{name: samples[min(int(count * share), count - 1)] for name, share in _QUANTILES.items()}}


def _topics(tally: Tally, accumulator: Accumulator, metadata: ClusterMetadata) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for name in sorted(accumulator.topics | {topic for topic, _ in tally.sent}):
        known = metadata.topics.get(name)
        partitions = {} if known is None else known.partitions
        topics[name] = {
            "topic": name,
            "partitions": {
                str(index): {
                    "partition": index,
                    "leader": int(partition.leader_id),
                    **_queue(accumulator.queue(name, index)),
                    "txmsgs": tally.sent[name, index][0],
                    "txbytes": tally.sent[name, index][1],
                }
                for index, partition in partitions.items()
            },
        }
    return topics


def _queue(queue: PartitionQueue | None) -> dict[str, int]:
    waiting = [] if queue is None else list(queue.waiting)
    sent = [] if queue is None else [batch for batch in queue.sent if batch.outcome is None]
    return {
        "msgq_cnt": sum(batch.count for batch in waiting),
        "msgq_bytes": sum(batch.payload_bytes for batch in waiting),
        "xmit_msgq_cnt": sum(batch.count for batch in sent),
        "xmit_msgq_bytes": sum(batch.payload_bytes for batch in sent),
        "msgs_inflight": sum(batch.count for batch in sent if batch.in_flight),
    }
