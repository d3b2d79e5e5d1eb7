"""The admin client's types for consumer groups, with confluent-kafka's names."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.admin.resources import AclOperation
from tidelog.admin.topics import Node
from tidelog.message import TopicPartition
from tidelog_foundation.errors import TidelogError


class ConsumerGroupState(enum.Enum):
    """The state of a group. ASSIGNING and RECONCILING belong to KIP-848's protocol."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5
    ASSIGNING = 6
    RECONCILING = 7

    @classmethod
    def parse(cls, name: str) -> ConsumerGroupState:
        """Return the state with this name of Kafka's, e.g. ``PreparingRebalance``; UNKNOWN for any other."""
        return _STATES.get(name.lower(), cls.UNKNOWN)

    @property
    def kafka_name(self) -> str:
        """Kafka's name of the state."""
        return _STATE_NAMES[self]

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, ConsumerGroupState) else NotImplemented


_STATE_NAMES = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.ASSIGNING: "Assigning",
    ConsumerGroupState.RECONCILING: "Reconciling",
}
_STATES = {name.lower(): state for state, name in _STATE_NAMES.items()}


class ConsumerGroupType(enum.Enum):
    """The protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2

    @classmethod
    def parse(cls, name: str) -> ConsumerGroupType:
        """Return the type with this name of Kafka's, ``consumer`` or ``classic``; UNKNOWN for any other."""
        return cls.__members__.get(name.upper(), cls.UNKNOWN)

    @property
    def kafka_name(self) -> str:
        """Kafka's name of the type."""
        return self.name.lower()

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, ConsumerGroupType) else NotImplemented


@dataclass(slots=True)
class ConsumerGroupTopicPartitions:
    """A group with partitions: those of a request (None: all with an offset), or results with offsets and errors."""

    group_id: str
    topic_partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """A group in a list. A simple group has offsets but never had members."""

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState = ConsumerGroupState.UNKNOWN
    type: ConsumerGroupType = ConsumerGroupType.UNKNOWN


@dataclass(frozen=True, slots=True)
class ListConsumerGroupsResult:
    """The groups by id, and the errors of nodes that could not list theirs."""

    valid: list[ConsumerGroupListing] = field(default_factory=list)
    errors: list[TidelogError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The current or target partitions of a member."""

    topic_partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. ``target_assignment`` (KIP-848) is None in a classic group."""

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group and its members. ``partition_assignor`` is empty until the group has chosen one.

    ``group_epoch`` and ``assignment_epoch`` belong to KIP-848's protocol and are None in a classic group.
    """

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: ConsumerGroupState
    coordinator: Node
    type: ConsumerGroupType = ConsumerGroupType.UNKNOWN
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: list[AclOperation] | None = None
    """The operations that the client may perform, if requested."""


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to remove from its group: a static one by its instance id, any by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition with a committed offset, or owned by a member.

    ``committed_offset`` is None if nothing is committed. ``log_end_offset`` is None if it could not be read, and
    ``error`` has the reason. ``lag`` is the difference, never below 0, or None if one of them is None.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    member: MemberDescription | None = None
    error: TidelogError | None = None

    @property
    def lag(self) -> int | None:
        """The number of records that are not consumed yet."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.committed_offset, 0)
