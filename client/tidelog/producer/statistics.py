"""The statistics for ``stats_cb``: the fields of librdkafka's STATISTICS.md that apply to this producer.

``Tally`` counts on the network thread, which also creates the text every ``statistics.interval.ms``.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tidelog.cluster import ClusterMetadata
from tidelog.cluster.traffic import NodeTraffic, client_statistics
from tidelog.producer.config import ProducerConfig
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import BatchAcknowledged, BatchFailed
from tidelog.producer.core.partition_queue import PartitionQueue


class Tally:
    """Counters of a producer's requests. They live on the network thread."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.nodes: defaultdict[int, NodeTraffic] = defaultdict(NodeTraffic)
        self.sent: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def begin(self, node_id: int, batches: Iterable[Batch], encoded: Iterable[bytes]) -> None:
        """Record the start of a request."""
        node = self.nodes[node_id]
        node.begin(sum(map(len, encoded)))
        node.tx_retries += any(batch.attempts for batch in batches)

    def end(
        self, node_id: int, began_s: float, batches: Iterable[Batch], events: Iterable[BatchAcknowledged | BatchFailed]
    ) -> None:
        """Record a request's answer."""
        failed = False
        for batch, event in zip(batches, events, strict=True):
            if isinstance(event, BatchAcknowledged):
                counts = self.sent[batch.topic, batch.partition]
                counts[0] += batch.count
                counts[1] += batch.payload_bytes
            else:
                failed = True
        self.nodes[node_id].end(began_s, failed=failed)


def statistics_json(
    config: ProducerConfig, tally: Tally, accumulator: Accumulator, metadata: ClusterMetadata, replies: int
) -> str:
    """Return the statistics as JSON; the caller holds the accumulator's lock."""
    return json.dumps(
        {
            **client_statistics("producer", config.client_id, tally.started, tally.nodes, metadata),
            "replyq": replies,
            "msg_cnt": len(accumulator),
            "msg_size": accumulator.payload_bytes,
            "msg_max": config.queue_buffering_max_messages,
            "msg_size_max": config.buffer_bytes,
            "txmsgs": sum(count for count, _ in tally.sent.values()),
            "txmsg_bytes": sum(size for _, size in tally.sent.values()),
            "topics": _topics(tally, accumulator, metadata),
        }
    )


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
