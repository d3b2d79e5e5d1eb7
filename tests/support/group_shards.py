"""A shard of groups with a log in memory, in which the test controls writes, commits and failures."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.broker.report import Report
from tidelog_node.groups.events import Event, GroupRequest, TopicInfo, TopicsChanged, TransactionEnded
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    SyncGroupRequest,
)
from tidelog_node.groups.records import Key, Value, decode
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.shard import GroupShard
from tidelog_node.shards.events import (
    ClientIdentity,
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    ShardRecord,
    TimePassed,
    WriteFailed,
    WriteRecords,
)
from tidelog_node.shards.pending import PendingRecords
from tidelog_node.shards.store import MemoryRecordStore

CLIENT = ClientIdentity("client", "/127.0.0.1")
START_MS = 1_000_000


class TransactionalStore(MemoryRecordStore):
    """A store that knows open transactions, as that of a shard's driver."""

    def __init__(self, records: Iterable[ShardRecord] = ()) -> None:
        self._open = PendingRecords()
        self._end = 0
        super().__init__(records)

    def write(self, write: WriteRecords) -> None:
        """Apply a committed write."""
        if write.transaction is None:
            self.apply(write.records)
        else:
            self._open.add(write.transaction.producer_id, self._end, write.records)
        self._end += len(write.records)

    def apply(self, records: Iterable[ShardRecord]) -> None:
        applied = tuple(records)
        self._open.supersede(applied)
        super().apply(applied)

    def end(self, producer_id: int, *, committed: bool) -> frozenset[str]:
        """End a transaction, and return the groups with offsets in it."""
        owners = self._open.owners_of(producer_id)
        super().apply(self._open.end(producer_id, committed=committed))
        return owners

    def pending_of(self, owner: str) -> Collection[bytes]:
        return self._open.keys_of(owner)

    def ids(self) -> Iterator[str]:
        yield from super().ids()
        yield from tuple(self._open.owners())


class ShardHarness:
    """A shard that commits at once unless ``holds_commits``. ``fails_writes`` refuses writes.

    The time of day is ``now_ms`` plus ``clock_error_ms``.
    """

    def __init__(self, settings: GroupSettings | None = None, store: TransactionalStore | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.store = store or TransactionalStore()
        self.now_ms = START_MS
        self.clock_error_ms = 0
        self.responses: dict[int, Any] = {}
        self.log: list[tuple[Key, Value | None]] = []
        self.reports: list[str] = []
        self.uncommitted: deque[WriteRecords] = deque()
        self.unsure: list[WriteRecords] = []
        self.holds_commits = False
        self.fails_writes: ErrorCode | None = None
        self.topics: dict[str, TopicInfo] = {}
        self._next_call = 0
        self._next_member = 0
        self._next_topic_id = 0
        self.reload()

    def reload(self, unsure: int = 0, kept: int = 0) -> None:
        """Let another node take over. Uncommitted records and all calls are lost.

        As exceptions, the first ``unsure`` writes with an unknown outcome and the first ``kept`` uncommitted writes are
        committed, since the new leader has them.
        """
        for write in (*self.unsure[:unsure], *list(self.uncommitted)[:kept]):
            self.store.write(write)
        self.unsure.clear()
        self.uncommitted.clear()
        self.shard = GroupShard(self.settings, self.store, self._new_member_id, self.now_ms)
        self.pass_time(0)

    def send(self, request: GroupRequest, client: ClientIdentity = CLIENT) -> int:
        """Send a call and return its id."""
        self._next_call += 1
        self.step(RequestReceived(self._next_call, request, client))
        return self._next_call

    def call(self, request: GroupRequest, client: ClientIdentity = CLIENT) -> Any:
        """Return the answer of a call that is answered at once."""
        return self.responses[self.send(request, client)]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Let a marker take effect in the log."""
        self.step(TransactionEnded(self.store.end(producer_id, committed=committed)))

    def abandon(self, call_id: int) -> None:
        self.step(RequestAbandoned(call_id))

    def set_topics(self, **partitions: int) -> None:
        """Replace the topics, given by their numbers of partitions. A new topic has a new id."""
        topics = {}
        for name, count in partitions.items():
            known = self.topics.get(name)
            self._next_topic_id += known is None
            topic_id = known.topic_id if known else self._next_topic_id.to_bytes(16, "big")
            topics[name] = TopicInfo(topic_id, name, count)
        self.topics = topics
        self.step(TopicsChanged(topics))

    def pass_time(self, ms: int) -> None:
        """Let time pass and process every deadline in it."""
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms) <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.step(TimePassed())
        self.now_ms = end_ms

    def commit(self, count: int | None = None) -> None:
        """Commit written records, oldest first."""
        for _ in range(len(self.uncommitted) if count is None else count):
            # Earlier records in the log are committed with it.
            for unsure in self.unsure:
                self.store.write(unsure)
                self.step(RecordsCommitted(unsure.write_id))
            self.unsure.clear()
            write = self.uncommitted.popleft()
            self.store.write(write)
            self.step(RecordsCommitted(write.write_id))

    def fail_written(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Report an unknown outcome for all written records."""
        while self.uncommitted:
            write = self.uncommitted.popleft()
            self.unsure.append(write)
            self.step(WriteFailed(write.write_id, error_for(code)))

    def step(self, event: Event) -> None:
        for command in self.shard.step(event, self.now_ms, self.now_ms + self.clock_error_ms):
            if isinstance(command, Respond):
                assert command.call_id not in self.responses, "answered twice"
                self.responses[command.call_id] = command.response
            elif isinstance(command, Report):
                self.reports.append(command.text % command.arguments)
            else:
                self._write(command)
        self.shard.check_invariants()

    def _write(self, write: WriteRecords) -> None:
        assert write.records
        if self.fails_writes is not None:
            self.step(WriteFailed(write.write_id, error_for(self.fails_writes)))
            return
        self.log.extend(_decoded(write))
        self.uncommitted.append(write)
        self.step(RecordsWritten(write.write_id))
        if not self.holds_commits:
            self.commit()

    def _new_member_id(self, prefix: str) -> str:
        self._next_member += 1
        return f"{prefix}-{self._next_member}"


def _decoded(write: WriteRecords) -> Iterable[tuple[Key, Value | None]]:
    for record in write.records:
        decoded = decode(record)
        assert decoded is not None
        yield decoded


def join_request(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocols: Iterable[tuple[str, bytes]] = (("range", b""),),
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 60_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=tuple(GroupProtocol(name=name, metadata=metadata) for name, metadata in protocols),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
    )


def sync_request(
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group: str = "g",
    instance: str | None = None,
    protocol: str = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name=protocol,
        assignments=tuple(MemberAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()),
    )


def heartbeat_request(
    member_id: str, generation: int, *, group: str = "g", instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def leave_request(*members: str, group: str = "g") -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=tuple(LeavingMember(member_id=m) for m in members))


def consumer_heartbeat_request(
    member_id: str, epoch: int = 0, *, group: str = "g", topics: Iterable[str] = ("t",), **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat of the consumer protocol. With epoch 0, the member joins and subscribes to ``topics``."""
    if epoch == 0:
        joining = {"rebalance_timeout_ms": 60_000, "topic_partitions": (), "subscribed_topic_names": tuple(topics)}
        fields = joining | fields
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def commit_request(
    offsets: dict[tuple[str, int], int],
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str = "",
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for (topic, partition), offset in offsets.items():
        named = OffsetCommitPartition(partition, offset, committed_metadata=metadata)
        topics.setdefault(topic, []).append(named)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=tuple(OffsetCommitTopic(name, tuple(partitions)) for name, partitions in topics.items()),
    )


def fetched_offsets(harness: ShardHarness, group: str = "g") -> dict[tuple[str, int], int]:
    """Return all committed offsets of a group."""
    response = harness.call(OffsetFetchGroup(group_id=group, all_topics=True))
    assert response.error is None
    return {partition: value.offset for partition, value in response.committed}


def join_new(harness: ShardHarness, **options: Any) -> tuple[str, int]:
    """Return the member id of a dynamic member, and the id of its call that joins with it."""
    first = harness.call(join_request(**options))
    assert first.error.code is ErrorCode.MEMBER_ID_REQUIRED
    return first.member_id, harness.send(join_request(first.member_id, **options))


def stable_group(harness: ShardHarness, members: int = 1) -> tuple[int, list[str]]:
    """Return the generation and the members, leader first, each assigned its own id."""
    joins = [join_new(harness) for _ in range(members)]
    harness.pass_time(harness.settings.group_initial_rebalance_delay_ms * (members + 1))
    answers = [harness.responses[call] for _, call in joins]
    leader, generation = answers[0].leader, answers[0].generation_id
    ids = sorted((member_id for member_id, _ in joins), key=lambda member_id: member_id != leader)
    for member_id in ids[1:]:
        harness.send(sync_request(member_id, generation))
    harness.call(sync_request(leader, generation, {m: m.encode() for m in ids}))
    return generation, ids


def code_of(response: Any) -> ErrorCode:
    """Return the error, which must exist, of a response or of its single item."""
    assert response.error is not None, response
    code: ErrorCode = response.error.code
    return code


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata in version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
