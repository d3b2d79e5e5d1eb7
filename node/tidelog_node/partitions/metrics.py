"""The metrics of a node's partitions, their logs and log directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.measurements import FLUSHES, OTHER_TOPICS
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.registry import PartitionRegistry
from tidelog_node.replication import LeaderState

_MANAGER: Final = "kafka.server:type=ReplicaManager"
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics"
_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"
_PARTITIONS_PER_STEP: Final = 256

PARTITIONS: Final = Metric(
    "tidelog_partitions", Kind.GAUGE, "The replicas that this node hosts.", kafka=(f"{_MANAGER},name=PartitionCount",)
)
LEADERS: Final = Metric(
    "tidelog_leader_partitions",
    Kind.GAUGE,
    "The partitions that this node leads.",
    kafka=(f"{_MANAGER},name=LeaderCount",),
)
OFFLINE: Final = Metric(
    "tidelog_offline_replicas",
    Kind.GAUGE,
    "The replicas of this node whose log cannot be used.",
    kafka=(f"{_MANAGER},name=OfflineReplicaCount",),
)
UNDER_REPLICATED: Final = Metric(
    "tidelog_under_replicated_partitions",
    Kind.GAUGE,
    "The partitions led by this node of which a replica is not in sync.",
    kafka=(f"{_MANAGER},name=UnderReplicatedPartitions", "kafka.cluster:type=Partition,name=UnderReplicated,*"),
)
UNDER_MIN_ISR: Final = Metric(
    "tidelog_under_min_isr_partitions",
    Kind.GAUGE,
    "The partitions led by this node with fewer in-sync replicas than min.insync.replicas: they take no acks=all.",
    kafka=(f"{_MANAGER},name=UnderMinIsrPartitionCount", "kafka.cluster:type=Partition,name=UnderMinIsr,*"),
)
AT_MIN_ISR: Final = Metric(
    "tidelog_at_min_isr_partitions",
    Kind.GAUGE,
    "The partitions led by this node with just as many in-sync replicas as min.insync.replicas.",
    kafka=(f"{_MANAGER},name=AtMinIsrPartitionCount", "kafka.cluster:type=Partition,name=AtMinIsr,*"),
)
ISR_SHRINKS: Final = Metric(
    "tidelog_isr_shrinks_total",
    Kind.COUNTER,
    "Changes that removed a replica from the ISR of a partition led by this node.",
    kafka=(f"{_MANAGER},name=IsrShrinksPerSec",),
)
ISR_EXPANDS: Final = Metric(
    "tidelog_isr_expands_total",
    Kind.COUNTER,
    "Changes that added a replica to the ISR of a partition led by this node.",
    kafka=(f"{_MANAGER},name=IsrExpandsPerSec",),
)
FOLLOWER_LAG: Final = Metric(
    "tidelog_follower_lag_max_records",
    Kind.GAUGE,
    "The largest distance of a follower from the end of a log led by this node.",
    unit="records",
    labels=("follower",),
    kafka=(
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
    ),
)
WAITING: Final = Metric(
    "tidelog_purgatory_requests",
    Kind.GAUGE,
    "Requests that wait for replicas (produce, delete_records), or partitions that a fetch waits for (fetch).",
    labels=("operation",),
    kafka=tuple(f"{_PURGATORY},delayedOperation={name}" for name in ("Produce", "Fetch", "DeleteRecords")),
)
BYTES_IN: Final = Metric(
    "tidelog_topic_received_bytes_total",
    Kind.COUNTER,
    "Bytes of batches that producers have appended.",
    unit="bytes",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=BytesInPerSec,topic=*",),
)
MESSAGES_IN: Final = Metric(
    "tidelog_topic_received_records_total",
    Kind.COUNTER,
    "Records that producers have appended.",
    unit="records",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=MessagesInPerSec,topic=*",),
)
APPENDS: Final = Metric(
    "tidelog_topic_produce_requests_total",
    Kind.COUNTER,
    "Partitions of produce requests that were appended. A request counts once for each of its partitions.",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=TotalProduceRequestsPerSec,topic=*",),
)
READS: Final = Metric(
    "tidelog_topic_fetch_requests_total",
    Kind.COUNTER,
    "Partitions with records in the fetch responses to consumers. Responses without records do not count.",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=TotalFetchRequestsPerSec,topic=*",),
)
BYTES_OUT: Final = Metric(
    "tidelog_topic_sent_bytes_total",
    Kind.COUNTER,
    "Bytes of batches in the fetch responses to consumers.",
    unit="bytes",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=BytesOutPerSec,topic=*",),
)
REPLICATED_IN: Final = Metric(
    "tidelog_topic_replication_received_bytes_total",
    Kind.COUNTER,
    "Bytes of batches that this node has fetched from leaders.",
    unit="bytes",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=ReplicationBytesInPerSec",),
)
REPLICATED_OUT: Final = Metric(
    "tidelog_topic_replication_sent_bytes_total",
    Kind.COUNTER,
    "Bytes of batches in the fetch responses to followers.",
    unit="bytes",
    labels=("topic",),
    kafka=(f"{_TOPICS},name=ReplicationBytesOutPerSec",),
)
LOG_SIZE: Final = Metric(
    "tidelog_topic_log_size_bytes",
    Kind.GAUGE,
    "The size of the logs of a topic's replicas on this node.",
    unit="bytes",
    labels=("topic",),
    kafka=("kafka.log:type=Log,name=Size,topic=*,partition=*",),
)
UNMEASURED: Final = Metric(
    "tidelog_topics_without_own_metrics",
    Kind.GAUGE,
    f"The hosted topics beyond metrics.topics.max, which share the label {OTHER_TOPICS}.",
)
CLEANER_RUNS: Final = Metric("tidelog_log_cleaner_runs_total", Kind.COUNTER, "Compactions of a log that have ended.")
CLEANER_FAILURES: Final = Metric(
    "tidelog_log_cleaner_failures_total",
    Kind.COUNTER,
    "Compactions that a disk has refused. They are tried again.",
    kafka=("kafka.log:type=LogCleaner,name=DeadThreadCount",),
)
CLEANER_READ: Final = Metric(
    "tidelog_log_cleaner_read_bytes_total",
    Kind.COUNTER,
    "Bytes that compactions have read.",
    unit="bytes",
    kafka=("kafka.log:type=LogCleaner,name=cleaner-recopy-percent (written by read)",),
)
CLEANER_WRITTEN: Final = Metric(
    "tidelog_log_cleaner_written_bytes_total",
    Kind.COUNTER,
    "Bytes that compactions have written.",
    unit="bytes",
    kafka=("kafka.log:type=LogCleaner,name=cleaner-recopy-percent (written by read)",),
)
UNCLEANABLE: Final = Metric(
    "tidelog_log_cleaner_skipped_partitions",
    Kind.GAUGE,
    "The partitions that cannot be compacted, which the cleaner skips until the next start.",
    kafka=("kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory=*",),
)
DIRECTORY_ONLINE: Final = Metric(
    "tidelog_log_directory_online",
    Kind.GAUGE,
    "Whether a log directory can be used: 1, or 0 if it has failed.",
    labels=("directory",),
    kafka=(
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*",
    ),
)
DIRECTORY_SIZE: Final = Metric(
    "tidelog_log_directory_size_bytes",
    Kind.GAUGE,
    "The size of the file system of a log directory.",
    unit="bytes",
    labels=("directory",),
)
DIRECTORY_FREE: Final = Metric(
    "tidelog_log_directory_free_bytes",
    Kind.GAUGE,
    "The usable free space of the file system of a log directory.",
    unit="bytes",
    labels=("directory",),
)
METRICS: Final = (
    PARTITIONS,
    LEADERS,
    OFFLINE,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    ISR_SHRINKS,
    ISR_EXPANDS,
    FOLLOWER_LAG,
    WAITING,
    BYTES_IN,
    MESSAGES_IN,
    APPENDS,
    READS,
    BYTES_OUT,
    REPLICATED_IN,
    REPLICATED_OUT,
    LOG_SIZE,
    UNMEASURED,
    FLUSHES,
    CLEANER_RUNS,
    CLEANER_FAILURES,
    CLEANER_READ,
    CLEANER_WRITTEN,
    UNCLEANABLE,
    DIRECTORY_ONLINE,
    DIRECTORY_SIZE,
    DIRECTORY_FREE,
)


@dataclass(slots=True)
class _Totals:
    """Sums over the partitions of a node."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    lags: dict[int, int] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    def add(self, partition: Partition) -> None:
        """Add a partition, but not its size."""
        self.partitions += 1
        waiters = partition.waiters
        self.waiting["produce"] += len(waiters.producers)
        self.waiting["delete_records"] += len(waiters.deletions)
        self.waiting["fetch"] += len(waiters.log_end) + len(waiters.high_watermark)
        if partition.state.leader is not None:
            self._add_leader(partition.state.leader)

    def _add_leader(self, leader: LeaderState) -> None:
        members = len(leader.isr.members)
        self.leaders += 1
        self.under_replicated += members <= len(leader.followers)
        self.under_min_isr += members < leader.effective_min_isr
        self.at_min_isr += members == leader.effective_min_isr
        for follower, progress in leader.followers.items():
            lag = leader.log_end_offset - max(0, progress.log_end_offset)
            if lag > self.lags.get(follower, -1):
                self.lags[follower] = lag


class PartitionMetrics:
    """Reads the metrics of a registry's partitions."""

    def __init__(self, registry: PartitionRegistry, directories: LogManager) -> None:
        self._registry = registry
        self._directories = directories

    def families(self) -> Iterator[Family | None]:
        """Yield the metrics, and None between groups of partitions, so that other tasks run."""
        totals, measured = _Totals(), self._registry.measured
        for number, partition in enumerate(self._registry, 1):
            totals.add(partition)
            totals.sizes[measured.label_of(partition.topic)] += partition.log.size_in_bytes
            if number % _PARTITIONS_PER_STEP == 0:
                yield None
        # Topics can have been created and deleted since the first step.
        hosted = {partition.topic for partition in self._registry}
        measured.keep(hosted)
        yield from self._states(totals)
        yield from self._traffic()
        yield LOG_SIZE.of({(topic,): size for topic, size in totals.sizes.items()})
        yield UNMEASURED.of(len(hosted) - sum(1 for _ in measured))
        yield FLUSHES.of(measured.flushes.snapshot())
        yield CLEANER_RUNS.of(measured.cleaner_runs)
        yield CLEANER_FAILURES.of(measured.cleaner_failures)
        yield CLEANER_READ.of(measured.cleaner_read_bytes)
        yield CLEANER_WRITTEN.of(measured.cleaner_written_bytes)
        yield UNCLEANABLE.of(len(measured.uncleanable))
        online, failed = self._directories.online, self._directories.failures
        yield DIRECTORY_ONLINE.of(
            {(str(each.path),): 1 for each in online if each.path not in failed} | {(str(path),): 0 for path in failed}
        )

    def spaces(self) -> Iterable[Family]:
        """Return the space of the log directories. It asks the file system, so it runs in a thread."""
        spaces = {(str(each.path),): self._directories.space(each.path) for each in self._directories.online}
        yield DIRECTORY_SIZE.of({labels: total for labels, (total, _) in spaces.items() if total >= 0})
        yield DIRECTORY_FREE.of({labels: free for labels, (_, free) in spaces.items() if free >= 0})

    def _states(self, totals: _Totals) -> Iterator[Family]:
        yield PARTITIONS.of(totals.partitions)
        yield LEADERS.of(totals.leaders)
        yield OFFLINE.of(self._registry.offline_count)
        yield UNDER_REPLICATED.of(totals.under_replicated)
        yield UNDER_MIN_ISR.of(totals.under_min_isr)
        yield AT_MIN_ISR.of(totals.at_min_isr)
        yield ISR_SHRINKS.of(self._registry.measured.isr_shrinks)
        yield ISR_EXPANDS.of(self._registry.measured.isr_expands)
        yield FOLLOWER_LAG.of({(str(follower),): lag for follower, lag in totals.lags.items()})
        yield WAITING.of({(operation,): count for operation, count in totals.waiting.items()})

    def _traffic(self) -> Iterator[Family]:
        measured = self._registry.measured
        topics = {(topic,): traffic for topic, traffic in measured} | {(OTHER_TOPICS,): measured.other}
        yield BYTES_IN.of({labels: each.bytes_in for labels, each in topics.items()})
        yield MESSAGES_IN.of({labels: each.messages_in for labels, each in topics.items()})
        yield APPENDS.of({labels: each.appends for labels, each in topics.items()})
        yield READS.of({labels: each.reads for labels, each in topics.items()})
        yield BYTES_OUT.of({labels: each.bytes_out for labels, each in topics.items()})
        yield REPLICATED_IN.of({labels: each.replicated_in for labels, each in topics.items()})
        yield REPLICATED_OUT.of({labels: each.replicated_out for labels, each in topics.items()})
