"""The membership of a simulated consumer in its group, in either protocol: its epoch, and its partitions."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Protocol

from sim.cluster.coordination import SESSION_MS

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.consumer_protocol import encode_assignment, read_assignment
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupMember,
    JoinGroupRequest,
    MemberAssignment,
    MemberTopicPartitions,
    SyncGroupRequest,
)
from tidelog_node.shards.wire import Writer

GROUP = "transform"
LOST = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
}
"""The errors that tell a member that it has lost its partitions, or must join again."""
_JOIN_MS = 3 * SESSION_MS
_TYPE, _ASSIGNOR = "consumer", "range"
_NO_EPOCH, _JOIN_EPOCH = -1, 0

Work = Generator[Any, Any, Any]


class Asker(Protocol):
    """A member's way to the coordinator of its group."""

    def ask_group(self, request: object, timeout_ms: int = ...) -> Work: ...


class Membership(Protocol):
    """A membership. ``epoch`` is the member epoch or the generation, ``fetches_as`` the member id of OffsetFetch."""

    member_id: str
    epoch: int

    @property
    def fetches_as(self) -> str | None: ...

    def heartbeat(self, asker: Asker, owned: Iterable[int]) -> Work:
        """Keep the membership alive, or join. Return the partitions if they have changed, else None."""
        ...

    def lose(self, code: ErrorCode) -> None:
        """Take note that the group does not know this member in this epoch."""
        ...


class ConsumerMembership:
    """The protocol of KIP-848: the coordinator assigns."""

    def __init__(self, member_id: str, topic: str, topic_id: bytes) -> None:
        self.member_id = member_id
        self.epoch = _JOIN_EPOCH
        self._topic = topic
        self._topic_id = topic_id

    @property
    def fetches_as(self) -> str | None:
        return self.member_id

    def heartbeat(self, asker: Asker, owned: Iterable[int]) -> Work:
        joins, partitions = self.epoch == _JOIN_EPOCH, tuple(sorted(owned))
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=SESSION_MS if joins else None,
            subscribed_topic_names=(self._topic,) if joins else None,
            topic_partitions=(MemberTopicPartitions(self._topic_id, partitions),) if partitions else (),
        )
        response = yield from asker.ask_group(request)
        self.epoch = response.member_epoch
        if response.assignment is None:
            return None
        return {index for each in response.assignment for index in each.partitions}

    def lose(self, code: ErrorCode) -> None:
        self.epoch = _JOIN_EPOCH


class ClassicMembership:
    """The classic protocol: all members join the next generation, and their leader assigns."""

    fetches_as = None

    def __init__(self, topic: str, partitions: int) -> None:
        self.member_id = ""
        self.epoch = _NO_EPOCH
        self._topic = topic
        self._partitions = partitions

    def heartbeat(self, asker: Asker, owned: Iterable[int]) -> Work:
        if self.epoch != _NO_EPOCH:
            yield from asker.ask_group(HeartbeatRequest(GROUP, self.epoch, self.member_id))
            return None
        return (yield from self._join(asker))

    def lose(self, code: ErrorCode) -> None:
        self.epoch = _NO_EPOCH
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _join(self, asker: Asker) -> Work:
        protocols = (GroupProtocol(_ASSIGNOR, _subscription(self._topic)),)
        request = JoinGroupRequest(
            GROUP, SESSION_MS, SESSION_MS, self.member_id, None, _TYPE, protocols, joins_at_once=True
        )
        joined = yield from asker.ask_group(request, _JOIN_MS)
        self.member_id = joined.member_id
        assignments = self._assign(joined.members) if joined.leader == joined.member_id else ()
        generation = joined.generation_id
        sync = SyncGroupRequest(GROUP, generation, self.member_id, None, _TYPE, _ASSIGNOR, assignments)
        synced = yield from asker.ask_group(sync, _JOIN_MS)
        self.epoch = generation
        return {index for _, index in read_assignment(synced.assignment)[0]}

    def _assign(self, members: tuple[JoinGroupMember, ...]) -> tuple[MemberAssignment, ...]:
        names = sorted(member.member_id for member in members)
        own = {
            name: [(self._topic, i) for i in range(place, self._partitions, len(names))]
            for place, name in enumerate(names)
        }
        return tuple(MemberAssignment(name, encode_assignment(partitions, 0)) for name, partitions in own.items())


def _subscription(topic: str) -> bytes:
    writer = Writer()
    writer.int16(0)
    writer.array((topic,), writer.string)
    writer.int32(-1)
    return bytes(writer)
