"""The coordinator of the groups of one partition of __consumer_offsets, as a pure state machine.

It keeps groups with members in memory and reads the others on demand from the store of committed records.
:class:`GroupShard` processes events and continues calls when their writes end. The requests are implemented in
:mod:`.member_requests`, :mod:`.offset_requests` and :mod:`.admin_requests`, the rules of the two protocols in
:mod:`.classic` and :mod:`.consumer`. A shard lives as long as its node leads the partition. State that is only in
memory is lost with it, as in Kafka, and live members join again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.broker.report import Report
from tidelog_node.groups import admin_requests, consumer_requests, member_requests, messages, offset_requests
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.classic import ClassicGroup
from tidelog_node.groups.classic.expiration import expire
from tidelog_node.groups.classic.membership import abandon
from tidelog_node.groups.classic.rebalance import begin_loaded
from tidelog_node.groups.cleanup import Cleanup, clean_up
from tidelog_node.groups.events import (
    Command,
    Event,
    GroupCall,
    GroupResponse,
    TimingsChanged,
    TopicInfo,
    TopicsChanged,
    TransactionEnded,
)
from tidelog_node.groups.limits import check_names
from tidelog_node.groups.loaded_groups import LoadedGroup, LoadedGroups
from tidelog_node.groups.offsets.committed import offset_changes_in
from tidelog_node.groups.records import is_group_key
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.step import Step, Write
from tidelog_node.shards.connections import ConnectionOrder, LateRequestError
from tidelog_node.shards.deadlines import Deadlines
from tidelog_node.shards.events import (
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    TimePassed,
    WriteFailed,
    WriteRecords,
)
from tidelog_node.shards.store import RecordStore

_AT_ONCE = 0
_FENCED: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class GroupShard:
    """One shard, used on one thread. Times are in ms.

    Deadlines use ``now_ms``, a clock that never goes back, so that setting the wall clock does not change session
    timeouts. Records use the wall-clock time, ``wall_ms``. ``new_member_id`` returns an id that no member has ever had
    and that begins with its argument. Kafka's ids are ``<client id or instance id>-<UUID>``.
    """

    def __init__(
        self, settings: GroupSettings, store: RecordStore, new_member_id: Callable[[str], str], now_ms: int
    ) -> None:
        """Take over the groups of a store. The session timeouts of their members start now."""
        self._settings = settings
        self._new_member_id = new_member_id
        self._groups = LoadedGroups(store, settings)
        self._deadlines = Deadlines()
        self._cleanup = Cleanup(now_ms)
        self._connections = ConnectionOrder()
        self._listings = admin_requests.Listings()
        self._topics: Mapping[str, TopicInfo] | None = None
        self._open_calls: dict[int, str] = {}
        """The group id of each open call, empty for calls without a group."""
        self._abandoned: set[int] = set()
        self._cleaned: list[str] = []
        """Groups cleaned up in this step. At its end those with nothing in memory alone are dropped."""
        self._writes: dict[int, Write] = {}
        self._written: set[int] = set()
        self._next_write_id = 1

    @property
    def next_deadline_ms(self) -> int:
        """The time of the next :class:`TimePassed`."""
        if self._listings:
            return _AT_ONCE
        next_ms = self._deadlines.next_ms()
        return self._cleanup.next_ms if next_ms is None else min(next_ms, self._cleanup.next_ms)

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> list[Command]:
        """Process an event and return the commands in order. ``wall_ms`` defaults to ``now_ms``."""
        wall_ms = now_ms if wall_ms is None else wall_ms
        step = Step(now_ms, wall_ms, self._settings, self._topics, self._new_member_id)
        match event:
            case RequestReceived():
                self._open_calls[event.call_id] = getattr(event.request, "group_id", "")
                self._handle(event, step)
            case RequestAbandoned():
                self._abandon(event.call_id, step)
            case RecordsWritten():
                self._note_written(event.write_id, step)
            case RecordsCommitted():
                self._end_write(event.write_id, None, step)
            case WriteFailed():
                self._end_write(event.write_id, event.error, step)
            case TopicsChanged():
                self._cleanup.change_topics(self._topics or {}, event.topics, now_ms)
                self._topics = event.topics
            case TimingsChanged():
                self._settings = replace(self._settings, own_timings=event.own_timings)
                self._groups.change_settings(self._settings)
            case TransactionEnded():
                self._read_again(event.group_ids)
            case TimePassed():
                self._pass_time(step)
            case _:
                assert_never(event)
        return self._finish(step)

    def loaded_groups(self) -> Iterator[LoadedGroup]:
        """Yield the groups in memory."""
        return iter(self._groups)

    def check_invariants(self) -> None:
        """Assert the shard's invariants."""
        waiting = set(self._listings.calls)
        for loaded in self._groups:
            assert loaded.exists
            assert loaded.open_writes <= self._writes.keys()
            if not isinstance(loaded.group, ClassicGroup):
                continue
            loaded.group.check_invariants()
            calls = [c for m in loaded.group.members.values() for c in (m.join_call, m.sync_call) if c is not None]
            assert len(calls) == len(set(calls))
            assert not waiting & set(calls)
            waiting.update(calls)
            deadline_ms = loaded.group.timers.next_deadline_ms
            assert deadline_ms is None or self.next_deadline_ms <= deadline_ms
        assert waiting <= self._open_calls.keys() | self._abandoned
        assert self._writes or self._open_calls.keys() <= waiting
        assert self._written <= self._writes.keys()
        assert all(write.offsets == tuple(offset_changes_in(write.records)) for write in self._writes.values())

    def _handle(self, call: GroupCall, step: Step) -> None:
        try:
            check_names(call)
            self._dispatch(call, step)
        except TidelogError as error:
            if error.code in _FENCED:
                group_id, api = self._open_calls[call.call_id], type(call.request).__name__.removesuffix("Request")
                step.report("Group %s: refused %s of a fenced member: %s", group_id, api, error.message)
            step.respond(call.call_id, refuse(call.request, error))

    def _dispatch(self, call: GroupCall, step: Step) -> None:
        request = call.request
        match request:
            case messages.JoinGroupRequest():
                member_requests.join(self._loaded(request.group_id, step), call, request, step)
            case messages.SyncGroupRequest():
                member_requests.sync(self._loaded(request.group_id, step), call, request, step)
            case messages.HeartbeatRequest():
                member_requests.heartbeat(self._loaded(request.group_id, step), call, request, step)
            case messages.LeaveGroupRequest():
                member_requests.leave(self._loaded(request.group_id, step), call, request, step)
            case messages.ConsumerGroupHeartbeatRequest():
                member_requests.consumer_heartbeat(self._loaded(request.group_id, step), call, request, step)
            case messages.OffsetCommitRequest():
                loaded = self._loaded(request.group_id, step)
                offset_requests.commit(loaded, call, request, self._cleanup.deleted_topics, step)
            case messages.TxnOffsetCommitRequest():
                self._check_order(request)
                loaded = self._loaded(request.group_id, step)
                offset_requests.txn_commit(loaded, call, request, self._cleanup.deleted_topics, step)
            case messages.OffsetFetchGroup():
                offset_requests.fetch(self._loaded(request.group_id, step), call, request, step)
            case messages.OffsetDeleteRequest():
                offset_requests.delete(self._loaded(request.group_id, step), call, request, step)
            case messages.ListGroupsRequest():
                self._listings.begin(call.call_id, request, self._groups.ids())
                self._go_on_listing(step)
            case messages.DescribeGroupsRequest():
                groups = [self._loaded(group_id, step) for group_id in request.group_ids]
                step.respond(call.call_id, admin_requests.describe_classic(groups))
            case messages.ConsumerGroupDescribeRequest():
                groups = [self._loaded(group_id, step) for group_id in request.group_ids]
                step.respond(call.call_id, admin_requests.describe_consumer(groups, step))
            case messages.DeleteGroupsRequest():
                unique = dict.fromkeys(request.group_ids)
                admin_requests.delete([self._loaded(group_id, step) for group_id in unique], call, step)
            case _:
                assert_never(request)

    def _check_order(self, request: messages.TxnOffsetCommitRequest) -> None:
        """Refuse a commit that may belong to an earlier transaction of the same producer and epoch (KAFKA-17754)."""
        producer = (request.producer_id, request.producer_epoch)
        if self._connections.is_late(*producer, request.connection_us):
            raise LateRequestError.of(*producer)

    def _loaded(self, group_id: str, step: Step) -> LoadedGroup:
        return self._groups.get(group_id, lambda loaded: _begin(loaded, step))

    def _go_on_listing(self, step: Step) -> None:
        def look(group_id: str, request: messages.ListGroupsRequest) -> messages.GroupListing | None:
            was_loaded = group_id in self._groups
            line = admin_requests.listing(self._loaded(group_id, step), request)
            if not was_loaded:
                self._groups.drop(group_id)
            return line

        answer = self._listings.go_on(look)
        if answer is not None:
            step.respond(*answer)

    def _abandon(self, call_id: int, step: Step) -> None:
        group_id = self._open_calls.pop(call_id, None)
        if group_id is None:
            return
        if self._listings.abandon(call_id):
            return
        self._abandoned.add(call_id)
        loaded = self._groups.peek(group_id)
        if loaded is not None and isinstance(loaded.group, ClassicGroup):
            abandon(loaded.group, call_id, step)
            self._groups.touched.add(group_id)

    def _note_written(self, write_id: int, step: Step) -> None:
        self._written.add(write_id)
        write = self._writes[write_id]
        self._loaded(write.group_id, step)
        for effect in write.effects:
            effect.written(step)

    def _end_write(self, write_id: int, error: TidelogError | None, step: Step) -> None:
        write = self._writes.pop(write_id, None)
        if write is None:
            # The write failed earlier and was committed after all. The store has its records.
            return
        loaded = self._loaded(write.group_id, step)
        unsure = error is not None and write_id in self._written
        self._written.discard(write_id)
        loaded.open_writes.remove(write_id)
        changed = (partition for partition, _ in write.offsets)
        loaded.offsets.end_write(changed, unsure=unsure, in_transaction=write.transaction is not None)
        if error is None:
            _take_over(loaded, write)
        else:
            loaded.is_ahead = True
        effects = [*write.effects]
        while loaded.waiting and loaded.waiting[0][0] <= write_id:
            effects.append(loaded.waiting.popleft()[1])
        for effect in effects:
            if error is None:
                effect.committed(step)
            else:
                effect.failed(step, error)

    def _read_again(self, group_ids: Iterable[str]) -> None:
        """Take over the offsets that a transaction has changed."""
        for group_id in group_ids:
            loaded = self._groups.peek(group_id)
            if loaded is not None:
                loaded.offsets.read_again()
                self._groups.touched.add(group_id)

    def _pass_time(self, step: Step) -> None:
        if self._listings:
            self._go_on_listing(step)
        for group_id in self._deadlines.pop_expired(step.now_ms):
            loaded = self._loaded(group_id, step)
            if isinstance(loaded.group, ClassicGroup):
                expire(loaded.group, step)
            else:
                consumer_requests.expire(loaded, loaded.group, step)
        for group_id in self._cleanup.next_slice(step.now_ms, self._groups.ids, self._settings):
            clean_up(self._loaded(group_id, step), self._cleanup, step)
            self._cleaned.append(group_id)

    def _finish(self, step: Step) -> list[Command]:
        commands: list[Command] = []
        for outcome in step.outcomes:
            if isinstance(outcome, Report):
                commands.append(outcome)
            elif isinstance(outcome, Write):
                commands.append(self._begin_write(outcome, step))
            else:
                commands.extend(self._answer(*outcome))
        while self._cleaned:
            self._groups.drop(self._cleaned.pop())
        for group_id in self._groups.forget_missing():
            self._deadlines.set(group_id, self._deadline_of(group_id))
        return commands

    def _begin_write(self, write: Write, step: Step) -> WriteRecords:
        write_id = self._next_write_id
        self._next_write_id += 1
        self._writes[write_id] = write
        loaded = self._loaded(write.group_id, step)
        loaded.open_writes.add(write_id)
        changed = (partition for partition, _ in write.offsets)
        loaded.offsets.write(changed, in_transaction=write.transaction is not None)
        return WriteRecords(write_id, write.records, write.transaction)

    def _answer(self, call_id: int, response: GroupResponse) -> list[Command]:
        if call_id in self._abandoned:
            self._abandoned.remove(call_id)
            return []
        del self._open_calls[call_id]
        return [Respond(call_id, response)]

    def _deadline_of(self, group_id: str) -> int | None:
        loaded = self._groups.peek(group_id)
        if loaded is None:
            return None
        group = loaded.group
        return group.timers.next_deadline_ms if isinstance(group, ClassicGroup) else group.next_deadline_ms


def _begin(loaded: LoadedGroup, step: Step) -> None:
    # A KIP-848 group requests its start by a deadline.
    if isinstance(loaded.group, ClassicGroup):
        begin_loaded(loaded.group, step)


def _take_over(loaded: LoadedGroup, write: Write) -> None:
    if write.transaction is not None:
        return
    loaded.offsets.apply(write.offsets)
    if len(write.records) > len(write.offsets):
        for record in write.records:
            if is_group_key(record.key):
                loaded.is_recorded = record.value is not None
