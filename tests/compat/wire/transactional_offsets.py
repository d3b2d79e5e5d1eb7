"""Offsets of groups in transactions: TxnOffsetCommit with all its errors, and OffsetFetch beside open transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat.wire.case import Case, Family
from compat.wire.side import UNKNOWN_ID, Side
from compat.wire.transactional import UNKNOWN_PRODUCER, Asked, describe, end, epoch_of, id_of, init, offsets, ready

from tidelog_node.kafka.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from tidelog_node.kafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tidelog_node.kafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_TOPIC, _MEMBER = "moved", "0d7f0b1e-3f5e-4c8e-9d55-0123456789ab"
_TIMES = ["transaction_start_time_ms"]
_SESSION_MS = 30_000
_WITH_MEMBERS = range(3, 6)
"""The versions of TxnOffsetCommit that name a member (KIP-447)."""


def _commit(
    name: str,
    group: str,
    *topics: str,
    offset: int = 5,
    of: str = "",
    raised: int = 0,
    producer_id: int | None = None,
    member: Callable[[Side], dict[str, Any]] = lambda side: {},
    **fields: Any,
) -> Asked:
    """Return a commit of two partitions, of which the second does not exist; the producer is that of ``of``."""
    kept = of or name
    partitions = [TxnOffsetCommitRequestPartition(index, offset, 2, "why") for index in (0, 9)]
    named = [TxnOffsetCommitRequestTopic(topic, partitions) for topic in topics or [_TOPIC]]
    return lambda side: TxnOffsetCommitRequest(
        name,
        group,
        id_of(side, kept) if producer_id is None else producer_id,
        epoch_of(side, kept) + raised,
        **({"topics": named} | fields | member(side)),
    )


def _fetch(group: str, *, stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(group, [OffsetFetchRequestTopic(_TOPIC, bytes(16), [0, 1, 9])], require_stable=stable)


def _fetch_all(group: str, *, stable: bool, every: bool = False) -> Asked:
    def make(side: Side) -> OffsetFetchRequest:
        topics = None if every else [OffsetFetchRequestTopic(_TOPIC, side.topic_ids.get(_TOPIC, UNKNOWN_ID), [0, 1, 9])]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, topics)], require_stable=stable)

    return make


def _fetched(when: str, group: str) -> tuple[Case, ...]:
    """Return cases with the offsets of a group as all kinds of readers see them."""
    return (
        Case(f"{when}, fetched", _fetch(group, stable=False), (1, 5, 6, 7), settles=True),
        Case(f"{when}, fetched stable", _fetch(group, stable=True), (7,), settles=True),
        Case(f"{when}, fetched of groups", _fetch_all(group, stable=False), (8, 9), settles=True),
        Case(f"{when}, fetched stable of groups", _fetch_all(group, stable=True), (8, 9), settles=True),
        Case(f"{when}, all fetched", _fetch_all(group, stable=False, every=True), (8, 9), settles=True),
        Case(f"{when}, all fetched stable", _fetch_all(group, stable=True, every=True), (8, 9), settles=True),
    )


_ALONE = (
    Case("moved: init", init("mover"), (5,), keep="mover", waits=True),
    Case("moved: not added", _commit("mover", "idle"), range(5)),
    Case("moved: an unknown id", _commit("nobody", "idle", of="mover")),
    Case("moved: an empty id", _commit("", "idle", of="mover")),
    Case("moved: an unknown producer", _commit("mover", "idle", producer_id=UNKNOWN_PRODUCER)),
    Case("moved: no producer", _commit("mover", "idle", producer_id=-1)),
    Case("moved: an older epoch", _commit("mover", "idle", raised=-1)),
    Case("moved: a newer epoch", _commit("mover", "idle", raised=1)),
    Case("moved: no group", _commit("mover", "")),
    Case("moved: no topics", _commit("mover", "idle", topics=[]), (0, 3)),
    Case("moved: adds the group", offsets("mover", "idle"), (4,)),
    Case("moved: no topics of a group that is added", _commit("mover", "idle", topics=[])),
    Case("moved: commits", _commit("mover", "idle"), range(5)),
    Case("moved: commits and adds", _commit("mover", "idle", offset=6), (5,)),
    Case("moved: no such topic", _commit("mover", "idle", "none")),
    Case("moved: one of two topics", _commit("mover", "idle", _TOPIC, "none")),
    Case("moved: an offset below 0", _commit("mover", "other", offset=-5), (5,)),
    Case("moved: an older epoch beside it", _commit("mover", "idle", raised=-1)),
    Case("moved: a newer epoch beside it", _commit("mover", "idle", raised=1)),
    Case("moved: a member of no group", _commit("mover", "idle", member_id="m", generation_id=1), _WITH_MEMBERS),
    Case("moved: a generation of no group", _commit("mover", "idle", generation_id=1), _WITH_MEMBERS),
    Case("moved: a member without a generation", _commit("mover", "idle", member_id="m"), _WITH_MEMBERS),
    Case("moved: an instance of no group", _commit("mover", "idle", group_instance_id="i"), _WITH_MEMBERS),
    *_fetched("moved: open", "idle"),
    Case("moved: described", describe("mover"), ignore=_TIMES),
    Case("moved: group described", DescribeGroupsRequest(["idle"], True), (5, 6)),
    Case("moved: group not deleted", DeleteGroupsRequest(["idle"]), (2,)),
    Case("moved: ends", end("mover"), (5,), keep="mover again"),
    *_fetched("moved: ended", "idle"),
    Case("moved: with the epoch of before", _commit("mover", "idle")),
    Case("moved: again", _commit("mover", "idle", of="mover again", offset=7), (5,), waits=True),
    *_fetched("moved: open again", "idle"),
    Case(
        "moved: forgotten meanwhile",
        OffsetDeleteRequest("idle", [OffsetDeleteRequestTopic(_TOPIC, [OffsetDeleteRequestPartition(0)])]),
        (0,),
    ),
    Case("moved: aborts", end("mover", commits=False, of="mover again"), (5,), keep="mover last"),
    *_fetched("moved: aborted", "idle"),
)


_LATE = (
    Case("moved late: init", init("late mover", 500), (5,), keep="late mover", waits=True),
    Case("moved late: commits", _commit("late mover", "late"), (5,)),
    Case("moved late: timed out", describe("late mover"), ignore=_TIMES, until="CompleteAbort"),
    *_fetched("moved late: timed out", "late"),
    Case("moved late: commits again", _commit("late mover", "late")),
    Case("moved late: adds", offsets("late mover", "late")),
    Case("moved late: ends", end("late mover")),
    *_fetched("moved late: ended", "late"),
)


def _join(group: str, member_id: str, instance: str | None) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"first")]
    return JoinGroupRequest(group, _SESSION_MS, _SESSION_MS, member_id, instance, "consumer", protocols)


def _member_of(kept: str, generation: int = 1, **fields: Any) -> Callable[[Side], dict[str, Any]]:
    return lambda side: {"member_id": side.kept[kept].member_id, "generation_id": generation} | fields


def _sync(group: str, kept: str, instance: str | None) -> Asked:
    def make(side: Side) -> SyncGroupRequest:
        member_id = side.kept[kept].member_id
        assignments = [SyncGroupRequestAssignment(member_id, b"all")]
        return SyncGroupRequest(group, 1, member_id, instance, "consumer", "range", assignments)

    return make


_CLASSIC = (
    Case("moved by a member: asks for an id", _join("dynamic", "", None), (5,), keep="id"),
    Case("moved by a member: joins", lambda side: _join("dynamic", side.kept["id"].member_id, None), (5,), keep="one"),
    Case("moved by a member: init", init("dynamic"), (5,), keep="dynamic", waits=True),
    Case("moved by a member: before it is synced", _commit("dynamic", "dynamic", member=_member_of("one")), (5,)),
    Case("moved by a member: synced", _sync("dynamic", "one", None), (5,)),
    Case("moved by a member: adds", offsets("dynamic", "dynamic"), (4,)),
    Case("moved by a member: commits", _commit("dynamic", "dynamic", member=_member_of("one")), _WITH_MEMBERS),
    Case("moved by a member: names no member", _commit("dynamic", "dynamic")),
    Case(
        "moved by a member: another",
        _commit("dynamic", "dynamic", member_id="nobody", generation_id=1),
        _WITH_MEMBERS,
    ),
    Case(
        "moved by a member: an older generation",
        _commit("dynamic", "dynamic", member=_member_of("one", 0)),
        _WITH_MEMBERS,
    ),
    Case(
        "moved by a member: a newer generation",
        _commit("dynamic", "dynamic", member=_member_of("one", 2)),
        _WITH_MEMBERS,
    ),
    Case(
        "moved by a member: no generation", _commit("dynamic", "dynamic", member=_member_of("one", -1)), _WITH_MEMBERS
    ),
    Case("moved by a member: a generation alone", _commit("dynamic", "dynamic", generation_id=1), _WITH_MEMBERS),
    Case(
        "moved by a member: an instance that it is not",
        _commit("dynamic", "dynamic", member=_member_of("one", group_instance_id="i")),
        _WITH_MEMBERS,
    ),
    *_fetched("moved by a member: open", "dynamic"),
    Case(
        "moved by a member: leaves",
        lambda side: LeaveGroupRequest("dynamic", "", [MemberIdentity(side.kept["one"].member_id)]),
        (5,),
    ),
    Case("moved by a member: that has left", _commit("dynamic", "dynamic", member=_member_of("one")), _WITH_MEMBERS),
    Case("moved by a member: a group left empty", _commit("dynamic", "dynamic")),
    Case("moved by a member: ends", end("dynamic"), (5,)),
    *_fetched("moved by a member: ended", "dynamic"),
)
_STATIC = (
    Case("moved by an instance: joins", _join("static-moved", "", "i"), (5,), keep="first"),
    Case("moved by an instance: syncs", _sync("static-moved", "first", "i"), (5,)),
    Case("moved by an instance: comes back", _join("static-moved", "", "i"), (9,), keep="second"),
    Case("moved by an instance: init", init("instance"), (5,), keep="instance", waits=True),
    Case("moved by an instance: adds", offsets("instance", "static-moved"), (4,)),
    *(
        Case(
            f"moved by an instance: {what}",
            _commit("instance", "static-moved", member=_member_of(kept, group_instance_id=instance)),
            _WITH_MEMBERS,
        )
        for what, kept, instance in (
            ("the second", "second", "i"),
            ("the fenced one", "first", "i"),
            ("the fenced one without its name", "first", None),
            ("another", "second", "j"),
        )
    ),
    Case("moved by an instance: aborts", end("instance", commits=False), (5,)),
)


def _of_epoch(raised: int, member_id: str = _MEMBER) -> Callable[[Side], dict[str, Any]]:
    return lambda side: {
        "member_id": member_id,
        "generation_id": side.kept["of epochs"].member_epoch + raised,
    }


_CONSUMER = (
    Case(
        "moved by a consumer: joins",
        ConsumerGroupHeartbeatRequest(
            "epochs",
            _MEMBER,
            0,
            rebalance_timeout_ms=_SESSION_MS,
            subscribed_topic_names=[_TOPIC],
            topic_partitions=[],
        ),
        (1,),
        keep="of epochs",
    ),
    Case("moved by a consumer: init", init("epochs"), (5,), keep="epochs", waits=True),
    Case("moved by a consumer: adds", offsets("epochs", "epochs"), (4,)),
    Case("moved by a consumer: commits", _commit("epochs", "epochs", member=_of_epoch(0)), _WITH_MEMBERS),
    Case("moved by a consumer: an older epoch", _commit("epochs", "epochs", member=_of_epoch(-1)), _WITH_MEMBERS),
    Case("moved by a consumer: a newer epoch", _commit("epochs", "epochs", member=_of_epoch(1)), _WITH_MEMBERS),
    Case("moved by a consumer: another", _commit("epochs", "epochs", member=_of_epoch(0, "nobody")), _WITH_MEMBERS),
    Case("moved by a consumer: names no member", _commit("epochs", "epochs")),
    Case(
        "moved by a consumer: no epoch",
        _commit("epochs", "epochs", member_id=_MEMBER, generation_id=-1),
        _WITH_MEMBERS,
    ),
    *_fetched("moved by a consumer: open", "epochs"),
    Case("moved by a consumer: leaves", ConsumerGroupHeartbeatRequest("epochs", _MEMBER, -1), (1,)),
    Case("moved by a consumer: that has left", _commit("epochs", "epochs", member=_of_epoch(0)), _WITH_MEMBERS),
    Case("moved by a consumer: a group left empty", _commit("epochs", "epochs", offset=8)),
    Case("moved by a consumer: not deleted", DeleteGroupsRequest(["epochs"]), (2,)),
    Case("moved by a consumer: ends", end("epochs"), (5,)),
    *_fetched("moved by a consumer: ended", "epochs"),
)


def _prepare(side: Side) -> None:
    side.create([_TOPIC], 2)
    ready(side)


FAMILIES = (Family("transactional offsets", (*_ALONE, *_LATE, *_CLASSIC, *_STATIC, *_CONSUMER), _prepare),)
