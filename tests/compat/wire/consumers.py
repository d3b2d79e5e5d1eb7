"""Groups of KIP-848: the heartbeat that joins, stays and leaves, and what other calls say of such a group."""

from __future__ import annotations

from typing import Any

from compat.wire.case import Case, Family
from compat.wire.side import UNKNOWN_ID, Side

from tidelog_node.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_node.kafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatTopicPartitions,
    LeaveGroupRequest,
    MemberIdentity,
)
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

_GROUP, _TOPIC, _MEMBER = "new", "consumed", "0d7f0b1e-3f5e-4c8e-9d55-6a1b1c2d3e4f"
_ANOTHER = "5f0a9c1e-1111-4c8e-9d55-6a1b1c2d3e4f"
_OWNED = HeartbeatTopicPartitions(UNKNOWN_ID, [0])


def _heartbeat(group: str = "refused", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat of a member that joins."""
    usual: dict[str, Any] = {
        "member_id": _ANOTHER,
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [_TOPIC],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(group, **(usual | fields))


def _regex(pattern: str) -> ConsumerGroupHeartbeatRequest:
    return _heartbeat(subscribed_topic_names=None, subscribed_topic_regex=pattern)


_REFUSED = (
    Case("consumer: no id", _heartbeat(member_id=""), (1,)),
    Case("consumer: a blank id", _heartbeat(member_id=" "), (1,)),
    Case("consumer: no group", _heartbeat("")),
    Case("consumer: a blank group", _heartbeat("  ")),
    Case("consumer: no timeout", _heartbeat(rebalance_timeout_ms=-1)),
    Case("consumer: no topics", _heartbeat(subscribed_topic_names=None)),
    Case("consumer: a bad expression", _regex("["), (1,)),
    Case("consumer: no instance", _heartbeat(instance_id="")),
    Case("consumer: no rack", _heartbeat(rack_id="")),
    Case("consumer: no such assignor", _heartbeat(server_assignor="nope")),
    Case("consumer: owns as it joins", _heartbeat(topic_partitions=[_OWNED])),
    Case("consumer: does not say what it owns", _heartbeat(topic_partitions=None)),
    Case("consumer: an epoch of no group", _heartbeat(member_epoch=5)),
    Case("consumer: leaves no group", _heartbeat(member_epoch=-1)),
    Case("consumer: leaves for a while without an instance", _heartbeat(member_epoch=-2)),
    Case("consumer: epoch -3", _heartbeat(member_epoch=-3)),
)


def _stays(side: Side, above: int = 0, member: str = _MEMBER) -> ConsumerGroupHeartbeatRequest:
    epoch = side.kept["joined"].member_epoch + above
    return ConsumerGroupHeartbeatRequest(_GROUP, member, epoch)


def _commit(side: Side, above: int = 0, member: str = _MEMBER) -> OffsetCommitRequest:
    epoch = side.kept["joined"].member_epoch + above if member else -1
    partitions = [OffsetCommitRequestPartition(0, 1)]
    return OffsetCommitRequest(_GROUP, epoch, member, topics=[OffsetCommitRequestTopic(_TOPIC, bytes(16), partitions)])


def _fetch(side: Side, above: int = 0, member: str | None = _MEMBER) -> OffsetFetchRequest:
    epoch = -1 if member is None else side.kept["joined"].member_epoch + above
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(_GROUP, member, epoch, None)])


_JOINED = (
    Case("consumer: joins", _heartbeat(_GROUP, member_id=_MEMBER), (1,), keep="joined"),
    Case("consumer: stays", _stays, (0, 1)),
    Case("consumer: an epoch to come", lambda side: _stays(side, 5), (0, 1)),
    Case("consumer: not a member", lambda side: _stays(side, member=_ANOTHER), (0, 1)),
    Case("consumer: described as classic", DescribeGroupsRequest([_GROUP], True)),
    Case("consumer: described", ConsumerGroupDescribeRequest([_GROUP, "none", ""], True)),
    Case("consumer: listed", ListGroupsRequest([], ["consumer"]), (5,), settles=True),
    Case("consumer: commits", _commit, (9,)),
    Case("consumer: commits as a classic one", _commit, (8,)),
    Case("consumer: commits an epoch to come", lambda side: _commit(side, 1), (9,)),
    Case("consumer: another commits", lambda side: _commit(side, member=_ANOTHER), (9,)),
    Case("consumer: nobody commits", lambda side: _commit(side, member=""), (8, 9)),
    Case("consumer: fetches", _fetch, (8, 9)),
    Case("consumer: fetches an epoch to come", lambda side: _fetch(side, 3), (8, 9)),
    Case("consumer: another fetches", lambda side: _fetch(side, member=_ANOTHER), (8, 9)),
    Case("consumer: nobody fetches", lambda side: _fetch(side, member=None), (8, 9)),
    Case("consumer: a classic heartbeat", HeartbeatRequest(_GROUP, 1, _MEMBER)),
    Case("consumer: another is to leave", LeaveGroupRequest(_GROUP, "", [MemberIdentity(_ANOTHER)]), (4,)),
    Case("consumer: not deleted", DeleteGroupsRequest([_GROUP])),
    Case("consumer: leaves", lambda side: _heartbeat(_GROUP, member_id=_MEMBER, member_epoch=-1), (1,)),
    Case("consumer: left empty", ConsumerGroupDescribeRequest([_GROUP], True)),
    Case("consumer: deleted", DeleteGroupsRequest([_GROUP]), (2,)),
    Case("consumer: gone", ConsumerGroupDescribeRequest([_GROUP], True)),
)


def _prepare(side: Side) -> None:
    side.create([_TOPIC], 2)


FAMILIES = (Family("consumers", (*_REFUSED, *_JOINED), _prepare),)
