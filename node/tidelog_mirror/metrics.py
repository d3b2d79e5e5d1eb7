"""The metrics of a mirror, with the names of MirrorMaker 2's MBeans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.security import metrics as certificates

if TYPE_CHECKING:
    from tidelog_mirror.flow_worker import FlowWorker

_SOURCE: Final = "kafka.connect.mirror:type=MirrorSourceConnector"
_CHECKPOINT: Final = "kafka.connect.mirror:type=MirrorCheckpointConnector"
_PARTITION: Final = ("source", "target", "topic", "partition")
_FLOW: Final = ("source", "target")

RECORDS: Final = Metric(
    "tidelog_mirror_records_total",
    Kind.COUNTER,
    "The records that the target has acknowledged, by remote topic.",
    labels=_PARTITION,
    kafka=(f"{_SOURCE} record-count", f"{_SOURCE} record-rate"),
)
BYTES: Final = Metric(
    "tidelog_mirror_written_bytes_total",
    Kind.COUNTER,
    "The bytes of batches, compressed as they are, that the target has acknowledged.",
    unit="bytes",
    labels=_PARTITION,
    kafka=(f"{_SOURCE} byte-count", f"{_SOURCE} byte-rate"),
)
AGE: Final = Metric(
    "tidelog_mirror_record_age_seconds",
    Kind.GAUGE,
    "The age of the newest record of the last fetch of a partition, when it was fetched.",
    unit="seconds",
    labels=_PARTITION,
    kafka=(f"{_SOURCE} record-age-ms",),
)
LATENCY: Final = Metric(
    "tidelog_mirror_replication_latency_seconds",
    Kind.GAUGE,
    "The time from the timestamp of the last copied record to its acknowledgement by the target.",
    unit="seconds",
    labels=_PARTITION,
    kafka=(f"{_SOURCE} replication-latency-ms",),
)
LAG: Final = Metric(
    "tidelog_mirror_lag_records",
    Kind.GAUGE,
    "The offsets of the source, up to its high watermark at the last fetch, that the target does not have.",
    unit="records",
    labels=_PARTITION,
)
CHECKPOINTS: Final = Metric(
    "tidelog_mirror_checkpoints_total",
    Kind.COUNTER,
    "The checkpoints of groups that the mirror has written.",
    labels=_FLOW,
    kafka=(_CHECKPOINT,),
)
HEARTBEATS: Final = Metric(
    "tidelog_mirror_heartbeats_total", Kind.COUNTER, "The heartbeats that the mirror has written.", labels=_FLOW
)
FAILURES: Final = Metric(
    "tidelog_mirror_failures_total",
    Kind.COUNTER,
    "Failed fetches, writes and tasks of a flow, each of which is repeated.",
    labels=_FLOW,
)
DECLARED: Final = (
    ("Partitions", (RECORDS, BYTES, AGE, LATENCY, LAG)),
    ("Flows", (CHECKPOINTS, HEARTBEATS, FAILURES)),
    ("Certificates", certificates.METRICS),
)
"""The metrics by subject."""


class MirrorMetrics:
    """Reads the metrics of all flows of a process."""

    def __init__(self, workers: Sequence[FlowWorker]) -> None:
        self._workers = workers

    def families(self) -> Iterator[Family | None]:
        """Yield the metrics."""
        of_partitions: dict[Metric, dict[tuple[str, ...], float]] = {m: {} for m in (RECORDS, BYTES, AGE, LATENCY, LAG)}
        of_flows: dict[Metric, dict[tuple[str, ...], float]] = {m: {} for m in (CHECKPOINTS, HEARTBEATS, FAILURES)}
        for worker in self._workers:
            flow = worker.flow.source, worker.flow.target
            for copy in worker.copier.reader.partitions.values():
                labels = (*flow, copy.lane.topic, str(copy.partition))
                of_partitions[RECORDS][labels] = copy.record_count
                of_partitions[BYTES][labels] = copy.byte_count
                of_partitions[AGE][labels] = copy.age_ms / 1000
                of_partitions[LATENCY][labels] = copy.latency_ms / 1000
                of_partitions[LAG][labels] = copy.lag
            yield None
            of_flows[CHECKPOINTS][flow] = worker.checkpoint_count
            of_flows[HEARTBEATS][flow] = worker.heartbeat_count
            of_flows[FAILURES][flow] = worker.failures + worker.copier.failures + worker.copier.reader.failures
        for metric, values in (of_partitions | of_flows).items():
            yield metric.of(values)
