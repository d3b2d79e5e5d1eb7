"""The coordinator of the groups of one partition of __consumer_offsets, as a pure state machine.

It keeps groups with members in memory and reads the others on demand from the store of committed records.
:class:`GroupShard` processes events and continues calls when their writes end. The requests are implemented in
:mod:`.group_requests`, :mod:`.offset_requests` and :mod:`.admin_requests`, the rules of the two protocols in
:mod:`.classic` and :mod:`.consumer`. A shard lives as long as its node leads the partition. State that is only in
memory is lost with it, as in Kafka, and live members join again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from tidelog_foundation.errors import TidelogError
from tidelog_node.groups import admin_requests, group_requests, messages, mixed_requests, offset_requests
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.classic import ClassicGroup
from tidelog_node.groups.classic.expiry import begin_loaded, expire
from tidelog_node.groups.classic.membership import abandon
from tidelog_node.groups.deadlines import Deadlines
from tidelog_node.groups.events import (
    Command,
    Event,
    GroupResponse,
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    TimePassed,
    TimingsChanged,
    TopicInfo,
    TopicsChanged,
    WriteFailed,
    WriteRecords,
)
from tidelog_node.groups.held import HeldGroup, HeldGroups
from tidelog_node.groups.limits import check_names
from tidelog_node.groups.listing import Listings
from tidelog_node.groups.offsets.committed import offset_changes_in
from tidelog_node.groups.records import is_group_key
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.store import GroupStore
from tidelog_node.groups.sweep import Sweep, clean_up
from tidelog_node.groups.turn import Turn, Write

_AT_ONCE = 0


class GroupShard:
    """One shard, used on one thread. Times are in ms.

    Deadlines use ``now_ms``, a clock that never goes back, so that setting the time of day does not change session
    timeouts. Records use the time of day, ``wall_ms``. ``new_member_id`` returns an id that no member has ever had and
    that begins with its argument. Kafka's ids are ``<client id or instance id>-<UUID>``.
    """

    def __init__(
        self, settings: GroupSettings, store: GroupStore, new_member_id: Callable[[str], str], now_ms: int
    ) -> None:
        """Take over the groups of a store. The session timeouts of their members start now."""
        self._settings = settings
        self._new_member_id = new_member_id
        self._groups = HeldGroups(store, settings)
        self._deadlines = Deadlines()
        self._sweep = Sweep(now_ms)
        self._listings = Listings()
        self._topics: Mapping[str, TopicInfo] | None = None
        self._open_calls: dict[int, str] = {}
        """The group id of each open call, empty for calls without a group."""
        self._abandoned: set[int] = set()
        self._swept: list[str] = []
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
        return self._sweep.next_ms if next_ms is None else min(next_ms, self._sweep.next_ms)

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> list[Command]:
        """Process an event and return the commands in order. ``wall_ms`` defaults to ``now_ms``."""
        wall_ms = now_ms if wall_ms is None else wall_ms
        turn = Turn(now_ms, wall_ms, self._settings, self._topics, self._new_member_id)
        match event:
            case RequestReceived():
                self._open_calls[event.call_id] = getattr(event.request, "group_id", "")
                self._handle(event, turn)
            case RequestAbandoned():
                self._abandon(event.call_id, turn)
            case RecordsWritten():
                self._note_written(event.write_id, turn)
            case RecordsCommitted():
                self._end_write(event.write_id, None, turn)
            case WriteFailed():
                self._end_write(event.write_id, event.error, turn)
            case TopicsChanged():
                self._sweep.change_topics(self._topics or {}, event.topics, now_ms)
                self._topics = event.topics
            case TimingsChanged():
                self._settings = replace(self._settings, own_timings=event.own_timings)
                self._groups.change_settings(self._settings)
            case TimePassed():
                self._pass_time(turn)
            case _:
                assert_never(event)
        return self._finish(turn)

    def check_invariants(self) -> None:
        """Assert the shard's invariants."""
        waiting = set(self._listings.calls)
        for held in self._groups:
            assert held.exists
            assert held.open_writes <= self._writes.keys()
            if not isinstance(held.group, ClassicGroup):
                continue
            held.group.check_invariants()
            calls = [c for m in held.group.members.values() for c in (m.join_call, m.sync_call) if c is not None]
            assert len(calls) == len(set(calls))
            assert not waiting & set(calls)
            waiting.update(calls)
            deadline_ms = held.group.timers.next_deadline_ms
            assert deadline_ms is None or self.next_deadline_ms <= deadline_ms
        assert waiting <= self._open_calls.keys() | self._abandoned
        assert self._writes or self._open_calls.keys() <= waiting
        assert self._written <= self._writes.keys()
        assert all(write.offsets == tuple(offset_changes_in(write.records)) for write in self._writes.values())

    def _handle(self, call: RequestReceived, turn: Turn) -> None:
        try:
            check_names(call)
            self._dispatch(call, turn)
        except TidelogError as error:
            turn.respond(call.call_id, refuse(call.request, error))

    def _dispatch(self, call: RequestReceived, turn: Turn) -> None:
        request = call.request
        match request:
            case messages.JoinGroupRequest():
                group_requests.join(self._held(request.group_id, turn), call, request, turn)
            case messages.SyncGroupRequest():
                group_requests.sync(self._held(request.group_id, turn), call, request, turn)
            case messages.HeartbeatRequest():
                group_requests.heartbeat(self._held(request.group_id, turn), call, request, turn)
            case messages.LeaveGroupRequest():
                group_requests.leave(self._held(request.group_id, turn), call, request, turn)
            case messages.ConsumerGroupHeartbeatRequest():
                group_requests.consumer_heartbeat(self._held(request.group_id, turn), call, request, turn)
            case messages.OffsetCommitRequest():
                held = self._held(request.group_id, turn)
                offset_requests.commit(held, call, request, self._sweep.deleted_topics, turn)
            case messages.OffsetFetchGroup():
                offset_requests.fetch(self._held(request.group_id, turn), call, request, turn)
            case messages.OffsetDeleteRequest():
                offset_requests.delete(self._held(request.group_id, turn), call, request, turn)
            case messages.ListGroupsRequest():
                self._listings.begin(call.call_id, request, self._groups.ids())
                self._go_on_listing(turn)
            case messages.DescribeGroupsRequest():
                groups = [self._held(group_id, turn) for group_id in request.group_ids]
                turn.respond(call.call_id, admin_requests.describe_classic(groups))
            case messages.ConsumerGroupDescribeRequest():
                groups = [self._held(group_id, turn) for group_id in request.group_ids]
                turn.respond(call.call_id, admin_requests.describe_consumer(groups, turn))
            case messages.DeleteGroupsRequest():
                unique = dict.fromkeys(request.group_ids)
                admin_requests.delete([self._held(group_id, turn) for group_id in unique], call, turn)
            case _:
                assert_never(request)

    def _held(self, group_id: str, turn: Turn) -> HeldGroup:
        return self._groups.get(group_id, lambda held: _begin(held, turn))

    def _go_on_listing(self, turn: Turn) -> None:
        def look(group_id: str, request: messages.ListGroupsRequest) -> messages.GroupListing | None:
            was_held = group_id in self._groups
            line = admin_requests.listing(self._held(group_id, turn), request)
            if not was_held:
                self._groups.drop(group_id)
            return line

        answer = self._listings.go_on(look)
        if answer is not None:
            turn.respond(*answer)

    def _abandon(self, call_id: int, turn: Turn) -> None:
        group_id = self._open_calls.pop(call_id, None)
        if group_id is None:
            return
        if self._listings.abandon(call_id):
            return
        self._abandoned.add(call_id)
        held = self._groups.peek(group_id)
        if held is not None and isinstance(held.group, ClassicGroup):
            abandon(held.group, call_id, turn)
            self._groups.touched.add(group_id)

    def _note_written(self, write_id: int, turn: Turn) -> None:
        self._written.add(write_id)
        write = self._writes[write_id]
        self._held(write.group_id, turn)
        if write.on_written is not None:
            write.on_written(turn)

    def _end_write(self, write_id: int, error: TidelogError | None, turn: Turn) -> None:
        write = self._writes.pop(write_id, None)
        if write is None:
            # The write failed earlier and was committed after all. The store has its records.
            return
        held = self._held(write.group_id, turn)
        unsure = error is not None and write_id in self._written
        self._written.discard(write_id)
        held.open_writes.remove(write_id)
        held.offsets.end_write((partition for partition, _ in write.offsets), unsure=unsure)
        if error is None:
            _take_over(held, write)
            if write.on_committed is not None:
                write.on_committed(turn)
        else:
            held.is_ahead = True
            if write.on_failed is not None:
                write.on_failed(turn, error)
        while held.waiting and held.waiting[0][0] <= write_id:
            held.waiting.popleft()[1](turn, error)

    def _pass_time(self, turn: Turn) -> None:
        if self._listings:
            self._go_on_listing(turn)
        for group_id in self._deadlines.pop_expired(turn.now_ms):
            held = self._held(group_id, turn)
            if isinstance(held.group, ClassicGroup):
                expire(held.group, turn)
            else:
                mixed_requests.expire(held, held.group, turn)
        for group_id in self._sweep.next_slice(turn.now_ms, self._groups.ids, self._settings):
            clean_up(self._held(group_id, turn), self._sweep, turn)
            self._swept.append(group_id)

    def _finish(self, turn: Turn) -> list[Command]:
        commands: list[Command] = []
        for outcome in turn.outcomes:
            if isinstance(outcome, Write):
                commands.append(self._begin_write(outcome, turn))
            else:
                commands.extend(self._answer(*outcome))
        while self._swept:
            self._groups.drop(self._swept.pop())
        for group_id in self._groups.forget_missing():
            self._deadlines.set(group_id, self._deadline_of(group_id))
        return commands

    def _begin_write(self, write: Write, turn: Turn) -> WriteRecords:
        write_id = self._next_write_id
        self._next_write_id += 1
        self._writes[write_id] = write
        held = self._held(write.group_id, turn)
        held.open_writes.add(write_id)
        held.offsets.write(partition for partition, _ in write.offsets)
        return WriteRecords(write_id, write.records)

    def _answer(self, call_id: int, response: GroupResponse) -> list[Command]:
        if call_id in self._abandoned:
            self._abandoned.remove(call_id)
            return []
        del self._open_calls[call_id]
        return [Respond(call_id, response)]

    def _deadline_of(self, group_id: str) -> int | None:
        held = self._groups.peek(group_id)
        if held is None:
            return None
        group = held.group
        return group.timers.next_deadline_ms if isinstance(group, ClassicGroup) else group.next_deadline_ms


def _begin(held: HeldGroup, turn: Turn) -> None:
    # A KIP-848 group requests its start by a deadline.
    if isinstance(held.group, ClassicGroup):
        begin_loaded(held.group, turn)


def _take_over(held: HeldGroup, write: Write) -> None:
    held.offsets.apply(write.offsets)
    if len(write.records) > len(write.offsets):
        for record in write.records:
            if is_group_key(record.key):
                held.is_recorded = record.value is not None
