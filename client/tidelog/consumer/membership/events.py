"""What a membership is told, and what it asks the shell to do. Both protocols speak through these.

``step(event, now_ms) -> list[Command]`` and ``next_deadline_ms``. Partitions are (topic, partition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError

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
class KnownTopic:
    """What the metadata says of a topic; ``racks[p]`` are those of partition p's replicas."""

    topic_id: bytes
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application subscribes, in place of what it subscribed to before.

    ``topics`` are the names, patterns already resolved by the shell; ``pattern`` is the alternation of all patterns
    (for servers that resolve it, KIP-848), empty for none.
    """

    topics: frozenset[str]
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The application reads nothing by subscription any more: the membership gives up its partitions and leaves."""


@dataclass(frozen=True, slots=True)
class TopicsLearned:
    """The metadata of all topics that members of the group subscribe to, as far as it is known; also on each change."""

    topics: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True)
class Polled:
    """The application has called poll(): ``max.poll.interval.ms`` starts anew."""


@dataclass(frozen=True, slots=True)
class Responded:
    """The coordinator has answered a :class:`Call`; the error of a response is inside."""

    call_id: int
    response: MembershipResponse


@dataclass(frozen=True, slots=True)
class CallFailed:
    """No coordinator answered a :class:`Call`, which may have taken effect. The shell looks for one anew by itself."""

    call_id: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class RebalanceServed:
    """The application has dealt with the last :class:`Revoke` or :class:`Assign` (its callback has returned)."""

    rebalance_id: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The consumer closes: give the partitions up and leave; :class:`Left` ends it."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may be over."""


Event = (
    Subscribed | Unsubscribed | TopicsLearned | Polled | Responded | CallFailed | RebalanceServed | Closing | TimePassed
)


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to the group's coordinator; a later Call for the same ``slot`` replaces one that has no answer.

    Of one membership at most one call is under way, beside heartbeats of the classic protocol.
    """

    call_id: int
    request: MembershipRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AskTopics:
    """Get the metadata of these topics, and tell it by :class:`TopicsLearned` (the leader assigns them)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take partitions from the application; ``lost``: they may belong to another member already.

    Answered by RebalanceServed. With ``incremental`` false they are all that it has.
    """

    rebalance_id: int
    partitions: frozenset[Key]
    incremental: bool
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Give partitions to the application; answered by RebalanceServed. With ``incremental`` they come on top."""

    rebalance_id: int
    partitions: frozenset[Key]
    incremental: bool


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """Who the member is now: what commits of offsets carry. Generation (or epoch) -1 and an empty id: no member."""

    generation_id: int
    member_id: str


@dataclass(frozen=True, slots=True)
class ReportError:
    """Tell the application, by an event that poll() returns; the membership goes on unless the error is fatal."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing follows a :class:`Closing` any more."""


Command = Call | AskTopics | Revoke | Assign | MembershipChanged | ReportError | Left
