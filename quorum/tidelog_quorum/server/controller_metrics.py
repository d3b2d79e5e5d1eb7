"""The metrics of a controller: the quorum, and the cluster as the metadata log describes it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import NO_BROKER
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.raft.protocol import RaftEngine

_CONTROLLER: Final = "kafka.controller:type=KafkaController"
_STATS: Final = "kafka.controller:type=ControllerStats"
_RAFT: Final = "kafka.server:type=raft-metrics"
_SNAPSHOTS: Final = "kafka.server:type=SnapshotEmitter"
_TOPICS_PER_STEP: Final = 64
_MAX_PROPOSALS: Final = 10_000
_MILLISECONDS: Final = 1_000

ACTIVE: Final = Metric(
    "tidelog_active_controller",
    Kind.GAUGE,
    "Whether this controller leads the quorum: 1 or 0. The sum over all controllers is 1.",
    kafka=(f"{_CONTROLLER},name=ActiveControllerCount", f"{_RAFT}: current-state"),
)
EPOCH: Final = Metric(
    "tidelog_quorum_epoch",
    Kind.GAUGE,
    "The epoch of the quorum, which is Raft's term. It grows with each election.",
    kafka=(f"{_RAFT}: current-epoch",),
)
LEADER: Final = Metric(
    "tidelog_quorum_leader_id",
    Kind.GAUGE,
    "The id of the leading controller as this one knows it, -1 if it knows none.",
    kafka=(f"{_RAFT}: current-leader",),
)
COMMITTED: Final = Metric(
    "tidelog_quorum_applied_offset",
    Kind.GAUGE,
    "The last offset of the metadata log that this controller has applied.",
    kafka=(f"{_RAFT}: high-watermark", f"{_CONTROLLER},name=LastAppliedRecordOffset"),
)
COMMIT_TIME: Final = Metric(
    "tidelog_quorum_commit_duration_seconds",
    Kind.HISTOGRAM,
    "The time from the proposal of an entry by this leader until it is committed.",
    unit="seconds",
    kafka=(f"{_RAFT}: commit-latency-avg", f"{_RAFT}: commit-latency-max"),
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
VOTER_LAG: Final = Metric(
    "tidelog_quorum_replica_lag_records",
    Kind.GAUGE,
    "The entries that another controller has not stored yet, as the leader knows it. Followers have no values.",
    unit="records",
    labels=("replica", "role"),
)
VOTER_AGE: Final = Metric(
    "tidelog_quorum_replica_last_contact_seconds",
    Kind.GAUGE,
    "The time since the leader heard from another controller, or since the beginning of its term if it never did. "
    "Followers have no values.",
    unit="seconds",
    labels=("replica", "role"),
)
VOTERS: Final = Metric(
    "tidelog_quorum_voters",
    Kind.GAUGE,
    "The voters of the quorum. Followers have no value.",
    kafka=(f"{_RAFT}: number-of-voters",),
)
SNAPSHOT: Final = Metric(
    "tidelog_metadata_snapshot_lag_records",
    Kind.GAUGE,
    "The committed entries behind the latest snapshot. Followers have no value.",
    unit="records",
)
SNAPSHOT_AGE: Final = Metric(
    "tidelog_metadata_snapshot_age_seconds",
    Kind.GAUGE,
    "The time since this controller generated its latest snapshot of the metadata, or since its start without one.",
    unit="seconds",
    kafka=(f"{_SNAPSHOTS},name=LatestSnapshotGeneratedAgeMs",),
)
SNAPSHOT_SIZE: Final = Metric(
    "tidelog_metadata_snapshot_size_bytes",
    Kind.GAUGE,
    "The size of the latest snapshot that this controller has generated, or else loaded; 0 without any.",
    unit="bytes",
    kafka=(f"{_SNAPSHOTS},name=LatestSnapshotGeneratedBytes",),
)
NODE_LAG: Final = Metric(
    "tidelog_metadata_node_lag_records",
    Kind.GAUGE,
    "The committed entries that a live node had not applied at its last heartbeat. Followers have no values.",
    unit="records",
    labels=("node",),
    kafka=("kafka.server:type=broker-metadata-metrics: last-applied-record-lag-ms",),
)
ELECTIONS: Final = Metric(
    "tidelog_leader_elections_total",
    Kind.COUNTER,
    "Elections of partition leaders by this controller.",
    kafka=(f"{_STATS},name=LeaderElectionRateAndTimeMs (up to Kafka 3)",),
)
UNCLEAN: Final = Metric(
    "tidelog_unclean_leader_elections_total",
    Kind.COUNTER,
    "Elections by this controller of a leader that may lack committed records.",
    kafka=(f"{_STATS},name=UncleanLeaderElectionsPerSec",),
)
TOPICS: Final = Metric(
    "tidelog_cluster_topics", Kind.GAUGE, "The topics of the cluster.", kafka=(f"{_CONTROLLER},name=GlobalTopicCount",)
)
PARTITIONS: Final = Metric(
    "tidelog_cluster_partitions",
    Kind.GAUGE,
    "The partitions of the cluster.",
    kafka=(f"{_CONTROLLER},name=GlobalPartitionCount",),
)
OFFLINE: Final = Metric(
    "tidelog_offline_partitions",
    Kind.GAUGE,
    "The partitions of the cluster without a leader.",
    kafka=(f"{_CONTROLLER},name=OfflinePartitionsCount",),
)
IMBALANCE: Final = Metric(
    "tidelog_preferred_leader_imbalance",
    Kind.GAUGE,
    "The partitions of the cluster that another replica leads than the first one.",
    kafka=(f"{_CONTROLLER},name=PreferredReplicaImbalanceCount",),
)
BROKERS: Final = Metric(
    "tidelog_brokers",
    Kind.GAUGE,
    "The registered nodes by state: active, fenced, or controlled_shutdown.",
    labels=("state",),
    kafka=tuple(f"{_CONTROLLER},name={name}BrokerCount" for name in ("Active", "Fenced", "ControlledShutdown")),
)
METRICS: Final = (
    ACTIVE,
    EPOCH,
    LEADER,
    COMMITTED,
    COMMIT_TIME,
    VOTERS,
    VOTER_LAG,
    VOTER_AGE,
    SNAPSHOT,
    SNAPSHOT_AGE,
    SNAPSHOT_SIZE,
    NODE_LAG,
    ELECTIONS,
    UNCLEAN,
    TOPICS,
    PARTITIONS,
    OFFLINE,
    IMBALANCE,
    BROKERS,
)


class CommitTimes:
    """The times of the entries that this leader has proposed."""

    def __init__(self) -> None:
        self.histogram = COMMIT_TIME.histogram()
        self._proposed: OrderedDict[int, int] = OrderedDict()

    def propose(self, index: int, now_ns: int) -> None:
        """Record that an entry has been proposed."""
        if len(self._proposed) < _MAX_PROPOSALS:
            self._proposed[index] = now_ns

    def commit(self, index: int, now_ns: int) -> None:
        """Record that everything up to an entry is committed."""
        while self._proposed and next(iter(self._proposed)) <= index:
            _, proposed_ns = self._proposed.popitem(last=False)
            self.histogram.observe(now_ns - proposed_ns)

    def forget(self) -> None:
        """Forget the entries in progress, whose fate another leader decides."""
        self._proposed.clear()


@dataclass(frozen=True, slots=True)
class _TopicCounts:
    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0


class ControllerMetrics:
    """Reads the metrics of one controller. ``describe`` returns the quorum as its leader sees it."""

    def __init__(
        self,
        controller: Controller,
        engine: RaftEngine,
        commits: CommitTimes,
        describe: Callable[[], DescribeQuorumResponse],
    ) -> None:
        self._controller = controller
        self._engine = engine
        self._commits = commits
        self._describe = describe
        self._topics: dict[str, tuple[TopicImage, _TopicCounts]] = {}

    def families(self) -> Iterator[Family | None]:
        """Yield the metrics, and None between groups of topics, so that other tasks run."""
        leader, controller = self._engine.leader, self._controller
        yield ACTIVE.of(leader.is_self)
        yield EPOCH.of(leader.epoch)
        yield LEADER.of(-1 if leader.leader_id is None else leader.leader_id)
        yield COMMITTED.of(controller.committed.offset)
        yield COMMIT_TIME.of(self._commits.histogram.snapshot())
        yield ELECTIONS.of(controller.elections)
        yield UNCLEAN.of(controller.unclean_elections)
        snapshot = self._engine.latest_snapshot()
        yield SNAPSHOT_AGE.of(snapshot.age_ms / _MILLISECONDS)
        yield SNAPSHOT_SIZE.of(snapshot.size_bytes)
        yield from self._quorum()
        yield from self._cluster(controller.committed)

    def _quorum(self) -> Iterator[Family]:
        try:
            quorum = self._describe()
        except TidelogError:
            yield from (metric.of({}) for metric in (VOTERS, VOTER_LAG, VOTER_AGE, SNAPSHOT, NODE_LAG))
            return
        end = max((each.log_end_offset for each in quorum.voters), default=0)
        roles = {"voter": quorum.voters, "observer": quorum.observers}
        others = {
            (str(each.replica_id), role): each
            for role, replicas in roles.items()
            for each in replicas
            if each.replica_id != quorum.leader_id
        }
        yield VOTERS.of(len(quorum.voters))
        yield VOTER_LAG.of({labels: max(0, end - each.log_end_offset) for labels, each in others.items()})
        yield VOTER_AGE.of({labels: each.silent_ms / _MILLISECONDS for labels, each in others.items()})
        yield SNAPSHOT.of(quorum.high_watermark - max(0, quorum.snapshot_offset))
        lags = {(str(node.broker_id),): max(0, quorum.high_watermark - node.metadata_offset) for node in quorum.brokers}
        yield NODE_LAG.of(lags)

    def _cluster(self, image: MetadataImage) -> Iterator[Family | None]:
        partitions = offline = imbalanced = 0
        known, self._topics = self._topics, {}
        for number, (name, topic) in enumerate(image.topics.items(), 1):
            before = known.get(name)
            # An image shares the topics that have not changed with the one before.
            counts = before[1] if before is not None and before[0] is topic else _counted(topic)
            self._topics[name] = topic, counts
            partitions += counts.partitions
            offline += counts.offline
            imbalanced += counts.imbalanced
            if number % _TOPICS_PER_STEP == 0:
                yield None
        yield TOPICS.of(len(image.topics))
        yield PARTITIONS.of(partitions)
        yield OFFLINE.of(offline)
        yield IMBALANCE.of(imbalanced)
        yield BROKERS.of(_brokers(image))


def _counted(topic: TopicImage) -> _TopicCounts:
    leaders = [(each.leader, each.replicas[0]) for each in topic.partitions.values()]
    offline = sum(leader == NO_BROKER for leader, _ in leaders)
    return _TopicCounts(len(leaders), offline, sum(leader != preferred for leader, preferred in leaders))


def _brokers(image: MetadataImage) -> dict[tuple[str], int]:
    states = {("active",): 0, ("fenced",): 0, ("controlled_shutdown",): 0}
    for broker in image.brokers.values():
        state = "fenced" if broker.fenced else "controlled_shutdown" if broker.in_controlled_shutdown else "active"
        states[state,] += 1
    return states
