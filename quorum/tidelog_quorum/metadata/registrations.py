"""The registered state of brokers and partitions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from tidelog_foundation.config.endpoints import GRPC
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.features import FeatureRange
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord

T = TypeVar("T")
_NEVER_A_MIRROR = LeaderEpoch(0)


class SharedTuples:
    """Stores equal tuples as one object: a cluster has few different lists of replicas, and fewer of directories."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def of(self, values: tuple[T, ...]) -> tuple[T, ...]:
        """Return the first tuple seen that equals ``values``."""
        return self._known.setdefault(values, values)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registered state of a broker. It may lead or join an ISR only if neither fenced nor shutting down.

    ``log_dirs`` are its usable log directories (KIP-858); a broker that reported none can use all it has. ``endpoint``
    is its gRPC listener; ``listeners`` are all, () for a version that did not report them. The fields are those of
    ``RegisterBrokerRecord``.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: bytes
    endpoint: Endpoint
    rack: str = ""
    log_dirs: tuple[DirectoryId, ...] = ()
    fenced: bool = True
    in_controlled_shutdown: bool = False
    features: tuple[FeatureRange, ...] = ()
    listeners: tuple[ListenerEndpoint, ...] = ()

    @property
    def is_active(self) -> bool:
        """True if the broker may lead partitions and join their ISR (KIP-841)."""
        return not (self.fenced or self.in_controlled_shutdown)

    @property
    def default_directory(self) -> DirectoryId:
        """The directory of a new replica on this broker, known only if the broker has a single directory."""
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    def endpoint_on(self, listener_name: str) -> Endpoint | None:
        """Return the address of a listener; None if the broker has none of that name."""
        for listener in self.listeners:
            if listener.name == listener_name:
                return Endpoint(listener.host, listener.port)
        return self.endpoint if not self.listeners and listener_name == GRPC else None

    def grpc_endpoint(self, listener_name: str | None) -> Endpoint:
        """Return the address of the gRPC listener of this name, or the first one's if there is none."""
        found = self.endpoint_on(listener_name) if listener_name is not None else None
        return found or self.endpoint

    def has_online(self, directory: DirectoryId) -> bool:
        """Return whether a replica in this directory is usable, as far as the broker has reported."""
        if directory == UNASSIGNED_DIRECTORY:
            return True
        return directory in self.log_dirs or (not self.log_dirs and directory != LOST_DIRECTORY)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Return the registration from its record."""
        return cls(**{f.name: getattr(record, f.name) for f in fields(cls)})

    def to_record(self) -> RegisterBrokerRecord:
        """Return the record of this registration."""
        return RegisterBrokerRecord(**{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The replicas, leader and epochs of a partition.

    ``isr`` is a subset of ``replicas``, empty only with eligible leader replicas (KIP-966); ``leader`` is in it, or
    ``NO_BROKER``. ``eligible_leader_replicas`` are other replicas with all committed records; ``last_known_elr`` is the
    last leader while there is none. ``leader_epoch`` grows with each election, ``partition_epoch`` with each change, so
    the partition epoch grows at least as fast. ``directories`` has the log directory of each of ``replicas``, in their
    order. ``adding_replicas`` and ``removing_replicas`` are disjoint parts of ``replicas`` during a reassignment
    (KIP-455). Only a cluster link may write a partition that ``is_mirror``, and its leader epoch is never below an
    epoch of its batches. ``mirror_end_epoch`` is the leader epoch that ended the mirror, 0 if there was none.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    directories: tuple[DirectoryId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_mirror: bool = False
    mirror_end_epoch: LeaderEpoch = _NEVER_A_MIRROR

    @property
    def is_reassigning(self) -> bool:
        """True if a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    def __post_init__(self) -> None:
        if not self.directories:
            object.__setattr__(self, "directories", (UNASSIGNED_DIRECTORY,) * len(self.replicas))

    def directory_of(self, replica: BrokerId) -> DirectoryId:
        """Return the log directory of a replica; unassigned for any other broker."""
        return dict(zip(self.replicas, self.directories, strict=True)).get(replica, UNASSIGNED_DIRECTORY)

    @classmethod
    def from_record(cls, record: PartitionRecord, shared: SharedTuples | None = None) -> PartitionRegistration:
        """Return the partition from its record; tuples that are in ``shared`` already are taken from there."""
        share = (SharedTuples() if shared is None else shared).of
        return cls(
            share(record.replicas),
            share(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            share(record.eligible_leader_replicas),
            share(record.last_known_elr),
            share(record.directories),
            record.adding_replicas,
            record.removing_replicas,
            record.is_mirror,
            record.mirror_end_epoch,
        )

    def to_record(self, topic_id: TopicId, index: int) -> PartitionRecord:
        """Return the record of this partition."""
        return PartitionRecord(
            topic_id=topic_id,
            partition_id=index,
            replicas=self.replicas,
            isr=self.isr,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            eligible_leader_replicas=self.eligible_leader_replicas,
            last_known_elr=self.last_known_elr,
            directories=self.directories,
            adding_replicas=self.adding_replicas,
            removing_replicas=self.removing_replicas,
            is_mirror=self.is_mirror,
            mirror_end_epoch=self.mirror_end_epoch,
        )

    def changed_by(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Return this partition after a change."""
        replicas = self.replicas if change.replicas is None else change.replicas
        isr = self.isr if change.isr is None else change.isr
        directories = self.directories
        if change.directories is not None:
            directories = change.directories
        elif replicas is not self.replicas:
            directories = tuple(map(self.directory_of, replicas))
        leader_epoch = max(self.leader_epoch + (change.leader is not None), change.leader_epoch or 0)
        return PartitionRegistration(
            replicas=replicas,
            # Usually all replicas are in sync; one tuple then serves for both.
            isr=replicas if isr == replicas else isr,
            leader=self.leader if change.leader is None else change.leader,
            leader_epoch=LeaderEpoch(leader_epoch),
            partition_epoch=PartitionEpoch(max(self.partition_epoch + 1, leader_epoch)),
            eligible_leader_replicas=(
                self.eligible_leader_replicas
                if change.eligible_leader_replicas is None
                else change.eligible_leader_replicas
            ),
            last_known_elr=self.last_known_elr if change.last_known_elr is None else change.last_known_elr,
            directories=directories,
            adding_replicas=self.adding_replicas if change.adding_replicas is None else change.adding_replicas,
            removing_replicas=self.removing_replicas if change.removing_replicas is None else change.removing_replicas,
            is_mirror=self.is_mirror if change.is_mirror is None else change.is_mirror,
            mirror_end_epoch=(
                LeaderEpoch(leader_epoch) if self.is_mirror and change.is_mirror is False else self.mirror_end_epoch
            ),
        )
