"""A manually driven membership: the test sends events and inspects the commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tidelog.consumer.assignors import KnownTopic
from tidelog.consumer.membership.events import (
    Assign,
    Call,
    CallFailed,
    Command,
    Event,
    Key,
    MembershipResponse,
    MembershipSettings,
    Polled,
    RebalanceServed,
    Responded,
    Revoke,
    Subscribed,
    TimePassed,
    TopicsLearned,
)
from tidelog.consumer.membership.factory import Membership, membership
from tidelog.consumer.membership.reconciliation import member_topics
from tidelog.v1 import common_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for

BACKOFF_MS = 100
C = TypeVar("C")


def topic(partitions: int, topic_id: str = "") -> KnownTopic:
    return KnownTopic(topic_id.encode().rjust(16, b"\0"), partitions)


def keys(name: str, *partitions: int) -> frozenset[Key]:
    return frozenset((name, partition) for partition in partitions)


def error(code: ErrorCode) -> common_pb2.Error:
    return common_pb2.Error(code=code.code, message=code.text)


class MemberScript:
    """One membership with invariant checks after every step. ``take`` returns each command once."""

    def __init__(self, **settings: object) -> None:
        defaults = {"group_id": "g", "assignors": ("range",), "max_poll_interval_ms": 60_000}
        self.settings = MembershipSettings(**{**defaults, **settings})  # type: ignore[arg-type]
        self.member: Membership = membership(self.settings, lambda: "made-id", lambda attempt: BACKOFF_MS * attempt)
        self.now_ms = 0.0
        self._commands: list[Command] = []

    def step(self, event: Event) -> None:
        self._commands += self.member.step(event, self.now_ms)
        self.member.check_invariants()

    def take(self, kind: type[C]) -> list[C]:
        found = [command for command in self._commands if isinstance(command, kind)]
        self._commands = [command for command in self._commands if not isinstance(command, kind)]
        return found

    def one(self, kind: type[C]) -> C:
        found = self.take(kind)
        assert len(found) == 1, (found, self._commands)
        return found[0]

    def call(self, request: type[C]) -> tuple[Call, C]:
        """Return the commanded call and its request, which must be of this type."""
        call = self.one(Call)
        assert isinstance(call.request, request), call
        return call, call.request

    def answer(self, call: Call, response: MembershipResponse) -> None:
        self.step(Responded(call.call_id, response))

    def fail(self, call: Call) -> None:
        self.step(CallFailed(call.call_id, error_for(ErrorCode._TRANSPORT)))

    def pass_ms(self, ms: float) -> None:
        self.now_ms += ms
        self.step(TimePassed())

    def subscribe(self, *topics: str) -> None:
        self.step(Subscribed(frozenset(topics)))

    def poll(self) -> None:
        """Poll, and serve the waiting rebalances."""
        self.step(Polled())
        while served := self.take(Revoke) + self.take(Assign):
            for command in served:
                self.step(RebalanceServed(command.rebalance_id))

    def serve(self, command: Revoke | Assign) -> None:
        self.step(RebalanceServed(command.rebalance_id))

    def learn(self, **partitions: int) -> None:
        self.step(TopicsLearned({name: topic(count, name) for name, count in partitions.items()}))

    # The classic protocol.

    def join(
        self, generation: int = 1, *, leader: str = "other", member_id: str = "m-1", protocol: str = "range"
    ) -> None:
        """Answer the JoinGroup in progress."""
        call, request = self.call(pb.JoinGroupRequest)
        members = [
            pb.JoinGroupMember(member_id=member_id, metadata=offered.metadata)
            for offered in request.protocols
            if offered.name == protocol and leader == member_id
        ]
        self.answer(
            call,
            pb.JoinGroupResponse(
                generation_id=generation,
                protocol_type="consumer",
                protocol_name=protocol,
                leader=leader,
                member_id=member_id,
                members=members,
            ),
        )

    def sync(self, assignment: bytes) -> pb.SyncGroupRequest:
        """Answer the SyncGroup in progress."""
        call, request = self.call(pb.SyncGroupRequest)
        self.answer(call, pb.SyncGroupResponse(assignment=assignment))
        return request

    # The protocol of KIP-848.

    def beat(
        self, epoch: int, assignment: Iterable[tuple[KnownTopic, int]] | None = None, *, interval_ms: int = 5_000
    ) -> pb.ConsumerGroupHeartbeatRequest:
        """Answer the heartbeat in progress."""
        call, request = self.call(pb.ConsumerGroupHeartbeatRequest)
        response = pb.ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
        )
        if assignment is not None:
            response.assignment.CopyFrom(member_topics((topic.topic_id, partition) for topic, partition in assignment))
        self.answer(call, response)
        return request

    def refuse(self, code: ErrorCode) -> None:
        """Refuse the heartbeat in progress."""
        call, _ = self.call(pb.ConsumerGroupHeartbeatRequest)
        self.answer(call, pb.ConsumerGroupHeartbeatResponse(error=error(code)))
