"""The settings, events and commands of a membership, shared by both protocols.

The interface is ``step(event, now_ms) -> list[Command]`` and ``next_deadline_ms``. A partition is (topic, number).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.consumer.assignors import KnownTopic
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """One consumer's settings under their usual names; those of the other protocol are ignored.

    ``max_poll_interval_ms`` is also the rebalance timeout, as in Kafka. ``assignors`` are names in order of preference
    (``partition.assignment.strategy``). ``remote_assignor`` is the server's (``group.remote.assignor``); the server
    chooses if it is empty.
    """

    group_id: str
    group_protocol: str = "classic"
    group_instance_id: str | None = None
    client_rack: str | None = None
    assignors: tuple[str, ...] = ("range", "roundrobin")
    remote_assignor: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000

    @property
    def is_static(self) -> bool:
        """True if the member keeps its place in the group across a restart (KIP-345)."""
        return self.group_instance_id is not None


Key = tuple[str, int]
MembershipRequest = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeaveGroupRequest
    | pb.ConsumerGroupHeartbeatRequest
)
MembershipResponse = (
    pb.JoinGroupResponse
    | pb.SyncGroupResponse
    | pb.HeartbeatResponse
    | pb.LeaveGroupResponse
    | pb.ConsumerGroupHeartbeatResponse
)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A new subscription of the application, which replaces the previous one.

    ``topics`` are names; the shell has resolved patterns. ``pattern`` is the alternation of all patterns for servers
    that resolve it (KIP-848), empty without patterns.
    """

    topics: frozenset[str]
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The application has unsubscribed: the membership releases its partitions and leaves."""


@dataclass(frozen=True, slots=True)
class TopicsLearned:
    """The known metadata of all topics to which the group subscribes; repeated on each change."""

    topics: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True)
class Polled:
    """The application has called poll(), which restarts ``max.poll.interval.ms``."""


@dataclass(frozen=True, slots=True)
class Responded:
    """The coordinator has answered a :class:`Call`, perhaps with an error in the response."""

    call_id: int
    response: MembershipResponse


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A :class:`Call` without an answer, which may have taken effect. The shell finds the coordinator again."""

    call_id: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class RebalanceServed:
    """The application has handled the last :class:`Revoke` or :class:`Assign`: its callback has returned."""

    rebalance_id: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The consumer is closing: release the partitions and leave, and confirm with :class:`Left`."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


Event = (
    Subscribed | Unsubscribed | TopicsLearned | Polled | Responded | CallFailed | RebalanceServed | Closing | TimePassed
)


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to the group's coordinator; a later Call for the same ``slot`` replaces an unanswered one.

    A membership has at most one call in flight, apart from heartbeats of the classic protocol.
    """

    call_id: int
    request: MembershipRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AskTopics:
    """Request the metadata of these topics, and report it with :class:`TopicsLearned` (the leader assigns them)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revoke partitions from the application; ``lost`` means that another member may own them already.

    RebalanceServed answers it. If not ``incremental``, these are all of its partitions.
    """

    rebalance_id: int
    partitions: frozenset[Key]
    incremental: bool
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign partitions to the application, in addition to its own if ``incremental``. RebalanceServed answers it."""

    rebalance_id: int
    partitions: frozenset[Key]
    incremental: bool


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """The member's new identity, which offset commits carry. Generation (or epoch) -1 and an empty
    id mean no member.
    """

    generation_id: int
    member_id: str


@dataclass(frozen=True, slots=True)
class ReportError:
    """Report an error to the application as an event of poll(). Unless it is fatal, the membership continues."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Left:
    """The membership has ended after :class:`Closing`."""


Command = Call | AskTopics | Revoke | Assign | MembershipChanged | ReportError | Left
