"""Classic groups: their coordinators, the calls of a member from its first JoinGroup on, and what an operator asks."""

from __future__ import annotations

from typing import Any

from compat.wire.case import Case, Family
from compat.wire.side import UNKNOWN_ID, Side

from tidelog_node.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from tidelog_node.kafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

_GROUP, _TOPIC = "classic", "read"
_SESSION_MS = 30_000
_PROTOCOLS = [JoinGroupRequestProtocol("range", b"first"), JoinGroupRequestProtocol("roundrobin", b"second")]


def _find(*keys: str, kind: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(keys[0] if keys else "", kind, list(keys))


_FIND = (
    Case("find", _find("any")),
    Case("find: no group", _find("")),
    Case("find: several", _find("any", "", "other", "any"), (4, 5, 6)),
    Case("find: none", _find(), (4, 6)),
    Case("find: of type 9", _find("any", kind=9), (1, 3, 4)),
    Case("find: of share groups too early", _find("any", kind=2), (3, 4, 5)),
)


def _join(group: str = _GROUP, **fields: Any) -> JoinGroupRequest:
    usual: dict[str, Any] = {
        "session_timeout_ms": _SESSION_MS,
        "rebalance_timeout_ms": _SESSION_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": _PROTOCOLS,
    }
    return JoinGroupRequest(group, **(usual | fields))


def _member(side: Side) -> str:
    member_id = side.kept["member"].member_id
    assert isinstance(member_id, str)
    return member_id


def _sync(side: Side, generation: int = 1, **fields: Any) -> SyncGroupRequest:
    usual: dict[str, Any] = {"member_id": _member(side), "protocol_type": "consumer", "protocol_name": "range"}
    return SyncGroupRequest(_GROUP, generation, **(usual | fields))


_JOIN = (
    Case("join: no group", _join("")),
    Case("join: too short a session", _join(session_timeout_ms=1)),
    Case("join: too long a session", _join(session_timeout_ms=99_999_999)),
    Case("join: an unknown member", _join(member_id="nobody")),
    Case("join: no protocols", _join(protocols=[])),
    Case("join: no type", _join(protocol_type="")),
    Case("join: no id yet", _join("none"), range(4, 10)),
    Case("join: at once, as before KIP-394", _join("old"), (0,)),
    Case("join: for an id", _join(), (5,), keep="member"),
    Case("join: with the id", lambda side: _join(member_id=_member(side)), (5,)),
    Case("join: again", lambda side: _join(member_id=_member(side)), range(3, 10)),
    Case("join: of another type", lambda side: _join(protocol_type="connect"), (5, 9)),
    Case("heartbeat: before it is synced", lambda side: HeartbeatRequest(_GROUP, 1, _member(side))),
    Case("sync: another generation", lambda side: _sync(side, 99)),
    Case("sync: another member", lambda side: _sync(side, member_id="nobody")),
    Case("sync: another protocol", lambda side: _sync(side, protocol_name="nope"), (5,)),
    Case("sync: another type", lambda side: _sync(side, protocol_type="connect"), (5,)),
    Case("sync: no protocol", lambda side: _sync(side, protocol_type=None, protocol_name=None), (5,)),
    Case("sync: no such group", SyncGroupRequest("none", 1, "nobody", None, "consumer", "range")),
    Case("sync: no group", SyncGroupRequest("", 1, "nobody", None, "consumer", "range")),
    Case("commit: before it is synced", lambda side: _commit(side)),
    Case(
        "sync",
        lambda side: _sync(side, assignments=[SyncGroupRequestAssignment(_member(side), b"all")]),
        (5,),
    ),
    Case("sync: again", lambda side: _sync(side)),
    Case("heartbeat", lambda side: HeartbeatRequest(_GROUP, 1, _member(side))),
    Case("heartbeat: another generation", lambda side: HeartbeatRequest(_GROUP, 7, _member(side))),
    Case("heartbeat: another member", HeartbeatRequest(_GROUP, 1, "nobody")),
    Case("heartbeat: another instance", lambda side: HeartbeatRequest(_GROUP, 1, _member(side), "i"), (3, 4)),
    Case("heartbeat: no such group", HeartbeatRequest("none", 1, "nobody")),
    Case("heartbeat: no group", HeartbeatRequest("", 1, "nobody")),
)


def _commit(side: Side, *topics: str, group: str = _GROUP, **fields: Any) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition, 5, -1, "why") for partition in (0, 9)]
    committed = [
        OffsetCommitRequestTopic(topic, side.topic_ids.get(topic, UNKNOWN_ID), partitions)
        for topic in topics or [_TOPIC]
    ]
    usual: dict[str, Any] = {"generation_id_or_member_epoch": 1, "member_id": _member(side), "topics": committed}
    return OffsetCommitRequest(group, **(usual | fields))


def _alone(side: Side, *topics: str, group: str = "alone", **fields: Any) -> OffsetCommitRequest:
    return _commit(side, *topics, group=group, **({"generation_id_or_member_epoch": -1, "member_id": ""} | fields))


def _metadata(side: Side) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(0, 5, -1, "m" * 5_000), OffsetCommitRequestPartition(1, -5, 3, None)]
    return _commit(side, topics=[OffsetCommitRequestTopic(_TOPIC, side.topic_ids[_TOPIC], partitions)])


_COMMIT = (
    Case("commit", lambda side: _commit(side)),
    Case("commit: no such topic", lambda side: _commit(side, "none")),
    Case("commit: one of two topics", lambda side: _commit(side, _TOPIC, "none")),
    Case("commit: another generation", lambda side: _commit(side, generation_id_or_member_epoch=77)),
    Case("commit: both", lambda side: _commit(side, _TOPIC, "none", generation_id_or_member_epoch=77)),
    Case("commit: another member", lambda side: _commit(side, member_id="nobody")),
    Case("commit: another instance", lambda side: _commit(side, group_instance_id="i"), (7, 8, 9)),
    Case("commit: no member of a group that has some", lambda side: _alone(side, group=_GROUP)),
    Case("commit: a member of no group", lambda side: _commit(side, group="none")),
    Case("commit: an id of no group", lambda side: _alone(side, group="none", member_id="nobody")),
    Case("commit: alone", lambda side: _alone(side)),
    Case("commit: alone without a name", lambda side: _alone(side, group="")),
    Case("commit: kept for a time", lambda side: _alone(side, retention_time_ms=100_000), (2, 4)),
    Case("commit: long metadata, a negative offset", _metadata),
    Case("commit: no topics", lambda side: _commit(side, topics=[])),
)


def _fetch(group: str, *topics: str, every: bool = False) -> OffsetFetchRequest:
    named = [OffsetFetchRequestTopic(topic, bytes(16), [0, 1, 9]) for topic in topics]
    return OffsetFetchRequest(group, None if every else named)


def _fetch_of(side: Side, *asked: tuple[str, str | None, int], topic: str | None = None) -> OffsetFetchRequest:
    named = topic and [OffsetFetchRequestTopic(topic, side.topic_ids.get(topic, UNKNOWN_ID), [0, 9])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(*of, named or None) for of in asked])


_TO_7 = range(1, 8)
_FETCH = (
    Case("fetch: of a group", _fetch(_GROUP, _TOPIC, "none"), _TO_7),
    Case("fetch: all of a group", _fetch(_GROUP, every=True), range(2, 8)),
    Case("fetch: no topics", _fetch(_GROUP), _TO_7),
    Case("fetch: no such group", _fetch("none", _TOPIC), _TO_7),
    Case("fetch: no group", _fetch("", _TOPIC), _TO_7),
    Case("fetch: all of some", lambda side: _fetch_of(side, (_GROUP, None, -1), ("none", None, -1)), (8, 9)),
    Case(
        "fetch: a topic of some", lambda side: _fetch_of(side, (_GROUP, None, -1), ("", None, -1), topic=_TOPIC), (8, 9)
    ),
    Case("fetch: no such topic", lambda side: _fetch_of(side, (_GROUP, None, -1), topic="none"), (8, 9)),
    Case("fetch: another member", lambda side: _fetch_of(side, (_GROUP, "nobody", 5)), (9,)),
    Case("fetch: a member", lambda side: _fetch_of(side, (_GROUP, _member(side), 1)), (9,)),
    Case("fetch: an older generation", lambda side: _fetch_of(side, (_GROUP, _member(side), 0)), (9,)),
    Case("fetch: an epoch and no member", lambda side: _fetch_of(side, (_GROUP, "", 5)), (9,)),
    Case("fetch: of no groups", OffsetFetchRequest(), (8, 9)),
)


def _forget(group: str, *topics: str) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, partitions) for topic in topics])


_OPERATOR = (
    Case("forget: of a group", _forget(_GROUP, _TOPIC, "none")),
    Case("forget: of no such group", _forget("none", _TOPIC)),
    Case("forget: of no such group and topic", _forget("none", "none")),
    Case("forget: of no group", _forget("", _TOPIC)),
    Case("forget: no topics", _forget(_GROUP)),
    Case("forget: no topics of no such group", _forget("none")),
    Case("forget: of one alone", _forget("alone", _TOPIC)),
    Case("forget: again", _forget("alone", _TOPIC)),
    Case("describe group", DescribeGroupsRequest([_GROUP, "none", "", "alone"], True)),
    Case("describe group: none", DescribeGroupsRequest([])),
    Case("describe group: twice", DescribeGroupsRequest(["none", "none"])),
    Case("list: stable", ListGroupsRequest(["stable"]), (4, 5), settles=True),
    Case("list: nothing such", ListGroupsRequest(["bogus"]), (4, 5)),
    Case("list: types", ListGroupsRequest(["Stable"], ["Classic"]), (5,)),
    Case("list: no such type", ListGroupsRequest([], ["bogus"]), (5,)),
    Case("list: of another type", ListGroupsRequest([], ["consumer"]), (5,)),
    Case("delete group", DeleteGroupsRequest([_GROUP, "none", ""])),
)


def _leave(group: str, *members: MemberIdentity) -> LeaveGroupRequest:
    return LeaveGroupRequest(group, members[0].member_id if members else "", list(members))


_LEAVE = (
    Case("leave: no such group", _leave("none", MemberIdentity("nobody"), MemberIdentity("", "i"))),
    Case("leave: no group", _leave("", MemberIdentity("nobody"))),
    Case("leave: no members", _leave(_GROUP), range(3, 6)),
    Case("leave: others", _leave(_GROUP, MemberIdentity("nobody"), MemberIdentity("", "none"))),
    Case(
        "leave: one twice",
        lambda side: _leave(_GROUP, MemberIdentity("nobody"), *[MemberIdentity(_member(side))] * 2),
        (4,),
    ),
    Case("leave: and it is empty", DescribeGroupsRequest([_GROUP], True), (5, 6)),
    Case("leave: and it goes", DeleteGroupsRequest([_GROUP]), (2,)),
)
_INSTANCE = (
    Case("instance: joins", _join("static", group_instance_id="i"), (5,), keep="instance"),
    Case(
        "instance: syncs",
        lambda side: SyncGroupRequest(
            "static",
            1,
            side.kept["instance"].member_id,
            "i",
            "consumer",
            "range",
            [SyncGroupRequestAssignment(side.kept["instance"].member_id, b"all")],
        ),
        (5,),
    ),
    Case("instance: comes back", _join("static", group_instance_id="i"), (9,), keep="instance again"),
    Case("instance: the first is fenced", lambda side: _beat(side, "instance", "i"), (3, 4)),
    Case("instance: the second is not", lambda side: _beat(side, "instance again", "i"), (3, 4)),
    Case("instance: a heartbeat without it", lambda side: _beat(side, "instance", None), (3, 4)),
    Case("instance: joins with the old id", lambda side: _rejoin(side, "instance"), (5, 9)),
    Case("instance: a commit of the first", lambda side: _commit_as(side, "instance"), (7, 8, 9)),
    Case("instance: a commit of the second", lambda side: _commit_as(side, "instance again"), (7, 8, 9)),
    Case("instance: described", DescribeGroupsRequest(["static"]), (4, 5, 6)),
    Case("instance: leaves", _leave("static", MemberIdentity("", "j"), MemberIdentity("", "i")), (3,)),
    Case("instance: then described", DescribeGroupsRequest(["static"]), (5,)),
)


def _beat(side: Side, kept: str, instance: str | None) -> HeartbeatRequest:
    return HeartbeatRequest("static", 1, side.kept[kept].member_id, instance)


def _rejoin(side: Side, kept: str) -> JoinGroupRequest:
    return _join("static", member_id=side.kept[kept].member_id, group_instance_id="i")


def _commit_as(side: Side, kept: str) -> OffsetCommitRequest:
    return _commit(side, group="static", member_id=side.kept[kept].member_id, group_instance_id="i")


def _prepare(side: Side) -> None:
    side.create([_TOPIC], 2)


FAMILIES = (Family("groups", (*_FIND, *_JOIN, *_COMMIT, *_FETCH, *_OPERATOR, *_LEAVE, *_INSTANCE), _prepare),)
