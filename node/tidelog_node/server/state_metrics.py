"""The metrics of a node's state: its standing with the controllers, its sessions, and the refusals of gRPC callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.transport.grpc_connections import REFUSED, GrpcConnections
from tidelog_node.handlers import NodeContext
from tidelog_node.partitions import MetadataCache
from tidelog_node.server.lifecycle import BrokerLifecycle

FENCED: Final = Metric(
    "tidelog_node_fenced",
    Kind.GAUGE,
    "Whether the controllers have fenced this node, so that it leads nothing: 1 or 0.",
    kafka=("kafka.server:type=KafkaServer,name=BrokerState",),
)
EPOCH: Final = Metric("tidelog_node_epoch", Kind.GAUGE, "The epoch of this node's registration, -1 before the first.")
APPLIED: Final = Metric(
    "tidelog_node_metadata_offset",
    Kind.GAUGE,
    "The last offset of the metadata log that this node has applied.",
    kafka=("kafka.server:type=broker-metadata-metrics: last-applied-record-offset",),
)
FETCH_SESSIONS: Final = Metric(
    "tidelog_fetch_sessions",
    Kind.GAUGE,
    "The incremental fetch sessions of followers and consumers.",
    kafka=("kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",),
)
COLD_FETCHES: Final = Metric(
    "tidelog_cold_fetches_total", Kind.COUNTER, "Fetches that waited for records to be read from the disk."
)
COLD_BYTES: Final = Metric(
    "tidelog_cold_fetched_bytes_total", Kind.COUNTER, "Bytes of records for which fetches waited for the disk."
)
METRICS: Final = (FENCED, EPOCH, APPLIED, FETCH_SESSIONS, COLD_FETCHES, COLD_BYTES, REFUSED)


class StateMetrics:
    """Reads the state of a node. ``context`` returns that of its handlers, None before it serves."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        metadata: MetadataCache,
        grpc: GrpcConnections,
        context: Callable[[], NodeContext | None],
    ) -> None:
        self._lifecycle = lifecycle
        self._metadata = metadata
        self._grpc = grpc
        self._context = context

    def families(self) -> Iterable[Family]:
        """Return the current values."""
        context = self._context()
        yield FENCED.of(self._lifecycle.is_fenced)
        yield EPOCH.of(self._lifecycle.broker_epoch)
        yield APPLIED.of(self._metadata.image.offset)
        yield FETCH_SESSIONS.of(0 if context is None else len(context.fetch_sessions.cache))
        yield COLD_FETCHES.of(0 if context is None else context.cold_reads.fetches)
        yield COLD_BYTES.of(0 if context is None else context.cold_reads.bytes)
        yield REFUSED.of(self._grpc.refused)
