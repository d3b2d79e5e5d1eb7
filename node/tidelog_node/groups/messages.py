"""Requests of groups and their responses, as the coordinator and its handlers use them: without a wire format.

``group_instance_id`` is None for dynamic members (KIP-345). Names of states and types of groups are those of GroupState
and GroupType in Kafka's clients: Stable, Empty, ...; classic, consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.transport.message_codec import NOT_IN_MESSAGE
from tidelog_node.shards.connections import UNORDERED

MayDescribe: TypeAlias = Callable[[str], bool]
NO_GENERATION = -1
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class GroupProtocol:
    """A protocol (an assignor) that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """A request to join a group or its next generation. ``protocols`` are in order of preference.

    The first call of a member has no ``member_id``; the answer is then MEMBER_ID_REQUIRED with the id to join with
    (KIP-394).
    """

    group_id: str
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: tuple[GroupProtocol, ...] = ()
    reason: str = ""
    joins_at_once: bool = field(default=False, metadata=NOT_IN_MESSAGE)
    """True for a client without MEMBER_ID_REQUIRED (Kafka's JoinGroup below version 4): its first call joins."""
    never_skips_assignment: bool = field(default=False, metadata=NOT_IN_MESSAGE)
    """True for a client without ``skip_assignment`` (Kafka's JoinGroup below version 9)."""
    may_describe: MayDescribe | None = field(default=None, compare=False, metadata=NOT_IN_MESSAGE)
    """Returns whether the caller may describe a topic; None on a node without an authorizer."""

    @property
    def join_timeout_ms(self) -> int:
        """The time to wait for the member to join again, by default its session timeout, as in old versions."""
        return self.rebalance_timeout_ms if self.rebalance_timeout_ms > 0 else self.session_timeout_ms

    @property
    def metadata_by_protocol(self) -> tuple[tuple[str, bytes], ...]:
        """The protocols with the member's metadata. A repeated name counts once, as in Kafka's collection."""
        return tuple({protocol.name: protocol.metadata for protocol in self.protocols}.items())


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member as the group's leader sees it."""

    member_id: str
    group_instance_id: str | None = None
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    """The generation that a member has joined, NO_GENERATION on error. Only the leader receives ``members``.

    ``skip_assignment`` tells a leader that the assignment stands, since a static member has returned (KIP-814).
    """

    error: TidelogError | None = None
    generation_id: int = NO_GENERATION
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The leader's assignment for a member."""

    member_id: str
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """A request for a member's assignment. Only the leader sends ``assignments``."""

    group_id: str
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocol_name: str = ""
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    """A member's assignment."""

    error: TidelogError | None = None
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A classic member's heartbeat."""

    group_id: str
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """The answer to a heartbeat. REBALANCE_IN_PROGRESS tells the member to join again."""

    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove. If ``member_id`` is empty, it is the member with the instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    """A request to remove members from a group."""

    group_id: str
    members: tuple[LeavingMember, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The result of one member."""

    member_id: str
    group_instance_id: str | None = None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    """The members' results in the order of the request."""

    error: TidelogError | None = None
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberTopicPartitions:
    """Partitions of a topic. Only descriptions contain ``topic_name``."""

    topic_id: bytes
    partitions: tuple[int, ...] = ()
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatRequest:
    """A heartbeat of KIP-848's protocol. Fields that are None are unchanged.

    The member chooses ``member_id`` for its whole life (KIP-1082). ``member_epoch`` 0 joins, -1 leaves; -2 means that a
    static member leaves and will return.
    """

    group_id: str
    member_id: str = ""
    member_epoch: int = 0
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    """In RE2/J's syntax; empty: none."""
    server_assignor: str | None = None
    topic_partitions: tuple[MemberTopicPartitions, ...] | None = None
    """The member's partitions."""
    may_describe: MayDescribe | None = field(default=None, compare=False, metadata=NOT_IN_MESSAGE)
    """Returns whether the caller may describe a topic; None on a node without an authorizer."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its target partitions, None if unchanged."""

    error: TidelogError | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[MemberTopicPartitions, ...] | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitPartition:
    """An offset to commit. The epoch is that of the last record before it, None if unknown."""

    index: int
    committed_offset: int
    committed_leader_epoch: int | None = None
    committed_metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitTopic:
    """Offsets of a topic."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """A commit. A generation or epoch of -1 with an empty member id means that it comes from no member."""

    group_id: str
    generation_id_or_member_epoch: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitTopic, ...] = ()
    without_member_epochs: bool = field(default=False, metadata=NOT_IN_MESSAGE)
    """True for a client without member epochs (Kafka's OffsetCommit below version 9)."""
    retention_time_ms: int | None = None
    """The retention from the commit on. None: ``offsets.retention.minutes``, from the time at which the group has no
    members."""


@dataclass(frozen=True, slots=True)
class OffsetCommitPartitionResult:
    """The result of one partition of a commit or a deletion."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitTopicResult:
    """The results of a topic."""

    name: str
    partitions: tuple[OffsetCommitPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The results in the order of the request."""

    topics: tuple[OffsetCommitTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """A commit of offsets as part of a transaction; they take effect when it is committed (KIP-98, KIP-447).

    A generation or epoch of -1 with an empty member id means that it comes from no member.
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitTopic, ...] = ()
    transaction_version: int = 0
    """The ``transaction.version`` of the client. From 2 on, the group is added to the transaction (KIP-890)."""
    guard: int = field(default=0, metadata=NOT_IN_MESSAGE)
    """The guard of the transaction's verification in the group's partition."""
    connection_us: int = field(default=UNORDERED, metadata=NOT_IN_MESSAGE)
    """The time at which the request's connection was opened, for the order of a producer's requests."""


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    """The results of all partitions."""

    topics: tuple[OffsetCommitTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetFetchGroup:
    """A group whose offsets are requested: those of ``topics``, or with ``all_topics`` all committed ones.

    A ``member_id`` belongs to a member of KIP-848's protocol with its epoch. None means that the request comes from no
    member.
    """

    group_id: str
    member_id: str | None = None
    member_epoch: int = 0
    topics: tuple[TopicPartitions, ...] = ()
    all_topics: bool = False
    require_stable: bool = field(default=False, metadata=NOT_IN_MESSAGE)
    """That of the whole request."""


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """A request for offsets of groups. ``require_stable`` refuses offsets that a transaction may change (KIP-447)."""

    groups: tuple[OffsetFetchGroup, ...] = ()
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class OffsetFetchPartitionResult:
    """A committed offset, -1 if there is none. The epoch is -1 if unknown."""

    index: int
    error: TidelogError | None = None
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetFetchTopicResult:
    """The offsets of a topic."""

    name: str
    partitions: tuple[OffsetFetchPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetFetchGroupResult:
    """The offsets of a group."""

    group_id: str
    error: TidelogError | None = None
    topics: tuple[OffsetFetchTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """The groups' offsets in the order of the request."""

    groups: tuple[OffsetFetchGroupResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    """The offsets of a group to delete (KIP-496)."""

    group_id: str
    topics: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    """The results in the order of the request, or the error of the group."""

    error: TidelogError | None = None
    topics: tuple[OffsetCommitTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """The groups and transactional ids whose coordinators are requested."""

    group_ids: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a group or of a transactional id. On error the node is -1 and the endpoint None."""

    group_id: str
    error: TidelogError | None = None
    node_id: int = -1
    endpoint: Endpoint | None = None
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """The coordinators of the groups, then those of the transactional ids, in the order of the request."""

    coordinators: tuple[Coordinator, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """A request for the groups in these states and of these types. An empty filter matches all groups."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group's entry. ``protocol_type`` is empty for a group that has only offsets."""

    group_id: str
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """Groups of one node. With COORDINATOR_LOAD_IN_PROGRESS they are those loaded so far."""

    error: TidelogError | None = None
    groups: tuple[GroupListing, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    """The groups of the classic protocol to describe."""

    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class DescribedGroupMember:
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A classic group. ``protocol_data`` is its assignor. A missing one is Dead with GROUP_ID_NOT_FOUND (KIP-1043)."""

    group_id: str
    error: TidelogError | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int | None = None
    """The permitted operations, one bit each, if an authorizer has been asked for them."""


@dataclass(frozen=True, slots=True)
class DescribeGroupsResponse:
    """The groups, each once."""

    groups: tuple[DescribedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeRequest:
    """The groups of KIP-848's protocol to describe."""

    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroupMember:
    """A member of a consumer group. ``uses_classic_protocol`` is whether it uses JoinGroup, SyncGroup and Heartbeat."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str = ""
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    assignment: tuple[MemberTopicPartitions, ...] | None = None
    target_assignment: tuple[MemberTopicPartitions, ...] | None = None
    uses_classic_protocol: bool = False


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A consumer group. Others have GROUP_ID_NOT_FOUND."""

    group_id: str
    error: TidelogError | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumerGroupMember, ...] = ()
    authorized_operations: int | None = None
    """The permitted operations, one bit each, if an authorizer has been asked for them."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeResponse:
    """The groups, each once."""

    groups: tuple[DescribedConsumerGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """The groups to delete with their offsets."""

    group_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """The result of one group."""

    group_id: str
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    """The groups, each once."""

    groups: tuple[DeletedGroup, ...] = ()
