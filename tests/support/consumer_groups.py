"""One KIP-848 consumer group with its log in simulated time, and clients that follow the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.groups.consumer import ConsumerGroup, Result
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberTopicPartitions,
)
from tidelog_node.groups.records import Key, Value, decode, encode
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.shards.events import ClientIdentity, ShardRecord

CLIENT = ClientIdentity("client", "host")
REBALANCE_TIMEOUT_MS = 10_000


def topic(name: str, partitions: int, number: int = 0) -> TopicInfo:
    """Return a topic. Another number means another topic of the same name."""
    return TopicInfo(name.encode().ljust(15, b".") + bytes([number]), name, partitions)


def parts(name: str, *indexes: int) -> Assignment:
    """Return partitions of a topic."""
    return frozenset((topic(name, 1).topic_id, index) for index in indexes)


def owned_topics(partitions: Assignment) -> tuple[MemberTopicPartitions, ...]:
    """Return partitions in the form of a heartbeat."""
    ids = sorted({topic_id for topic_id, _ in partitions})
    return tuple(MemberTopicPartitions(id_, tuple(sorted(i for t, i in partitions if t == id_))) for id_ in ids)


def partitions_in(topics: tuple[MemberTopicPartitions, ...] | None) -> Assignment:
    """Return the partitions of a message."""
    return frozenset((topic.topic_id, index) for topic in topics or () for index in topic.partitions)


@contextmanager
def refused(code: ErrorCode, containing: str = "") -> Iterator[None]:
    """Expect an error with a text that contains ``containing``."""
    with pytest.raises(TidelogError) as error:
        yield
    assert error.value.code is code
    assert containing in error.value.message


class GroupHarness:
    """A group whose records are encoded, written and replayed at once."""

    def __init__(self, *topics: TopicInfo, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.group = ConsumerGroup("g", self.settings)
        self.log: list[ShardRecord] = []
        self.now_ms = 1_000
        self.change_topics(*topics)

    def change_topics(self, *topics: TopicInfo) -> None:
        """Replace the topics of the cluster."""
        self.topics = MappingProxyType({topic.name: topic for topic in topics})

    def write(self, result: Result[object]) -> list[tuple[Key, Value | None]]:
        """Write the records of a result and return them."""
        for key, value in result.records:
            self.write_record(key, value)
        self.group.check_invariants()
        return list(result.records)

    def write_record(self, key: Key, value: Value | None) -> None:
        """Write one record."""
        record = encode(key, value)
        self.log.append(record)
        decoded = decode(record)
        assert decoded == (key, value)
        self.group.replay(*decoded)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat and write its records."""
        result = self.group.heartbeat(request, CLIENT, self.topics, self.now_ms)
        self.last_records = self.write(result)
        return result.response

    def join(
        self,
        member_id: str,
        *names: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Join or rejoin a member."""
        return self.send(join_request(member_id, *names, regex=regex, instance_id=instance_id, assignor=assignor))

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Assignment | None = None,
        *,
        names: Iterable[str] | None = None,
        instance_id: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a minimal heartbeat."""
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                group_instance_id=instance_id,
                subscribed_topic_names=None if names is None else tuple(names),
                topic_partitions=None if owned is None else owned_topics(owned),
            )
        )

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass and process each deadline when it expires."""
        end_ms = self.now_ms + elapsed_ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.write(self.expire(self.now_ms))
        self.now_ms = end_ms

    def expire(self, now_ms: int) -> Result[None]:
        """Return the result of removing the members whose deadlines have passed."""
        return self.group.remove(self.group.expired(now_ms), now_ms)

    def owned_by(self, member_id: str) -> Assignment:
        """Return the partitions that the coordinator has assigned to a member."""
        return self.group.state.members[member_id].assigned

    def load(self) -> ConsumerGroup:
        """Return the group as another coordinator loads it from the log."""
        loaded = ConsumerGroup("g", self.settings)
        newest = {record.key: record.value for record in self.log}
        for key, value in sorted(newest.items()):
            decoded = decode(ShardRecord(key, value))
            assert decoded is not None
            if value is not None:
                loaded.replay(*decoded)
        return loaded


def join_request(
    member_id: str,
    *names: str,
    regex: str | None = None,
    instance_id: str | None = None,
    assignor: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat of a joining member."""
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        group_instance_id=instance_id,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=(),
    )


class GroupClient:
    """A member that behaves like a consumer: it revokes partitions before it takes new ones.

    ``holds`` are the partitions that the application may be processing.
    """

    def __init__(
        self, member_id: str, names: Iterable[str], regex: str | None = None, instance_id: str | None = None
    ) -> None:
        self.member_id = member_id
        self.names = sorted(names)
        self.regex = regex
        self.instance_id = instance_id
        self.epoch = 0
        self.assignment: Assignment = frozenset()
        self.holds: Assignment = frozenset()
        self._says_all = True

    def subscribe(self, names: Iterable[str], regex: str | None) -> None:
        """Change the subscription."""
        self.names = sorted(names)
        self.regex = regex
        self._says_all = True

    def finish_revocation(self) -> None:
        """Record that the application has released the revoked partitions."""
        self.holds = self.assignment

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            group_instance_id=self.instance_id,
            topic_partitions=owned_topics(self.holds),
        )
        if not self._says_all:
            return request
        return replace(
            request,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=tuple(self.names),
            subscribed_topic_regex=self.regex or "",
        )

    def receive(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Process an answer."""
        self.epoch = response.member_epoch
        self._says_all = False
        if response.assignment is not None:
            self.assignment = partitions_in(response.assignment)
        if self.holds <= self.assignment:
            self.holds = self.assignment

    def miss(self) -> None:
        """Lose the answer, so that the next heartbeat is complete."""
        self._says_all = True

    def lose_all(self) -> None:
        """Drop everything after the coordinator has fenced the member, and rejoin."""
        self.epoch = 0
        self.assignment = self.holds = frozenset()
        self._says_all = True
