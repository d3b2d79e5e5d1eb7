"""A consumer group in simulated time: memberships, their applications, and the coordinator's core.

All decisions are the product's: the client's memberships and the node's :class:`GroupShard`. Simulated are the network
(delayed or lost calls and answers), the log behind the coordinator (delayed commits; uncommitted records may be lost
when the coordinator moves), the applications (they poll, and process their partitions between polls) and the metadata.
The run is a function of the seed and of the test's actions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from group_codecs import codec_of

from tidelog.consumer.assignors import KnownTopic
from tidelog.consumer.membership.events import (
    AskTopics,
    Assign,
    Call,
    CallFailed,
    Closing,
    Command,
    Event,
    Key,
    Left,
    MembershipChanged,
    MembershipRequest,
    MembershipResponse,
    MembershipSettings,
    Polled,
    RebalanceServed,
    ReportError,
    Responded,
    Revoke,
    Subscribed,
    TimePassed,
    TopicsLearned,
    Unsubscribed,
)
from tidelog.consumer.membership.factory import Membership, membership
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import messages
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.events import Command as ShardCommand
from tidelog_node.groups.events import Event as ShardEvent
from tidelog_node.groups.events import GroupRequest, GroupResponse, TopicInfo, TopicsChanged
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
    WriteRecords,
)
from tidelog_node.shards.events import TimePassed as ShardTimePassed
from tidelog_node.shards.store import MemoryRecordStore

GROUP = "g"
POLL_MS = 200
SESSION_MS = 10_000
MAX_POLL_MS = 20_000
BEGINNING_MS = 1_000_000
COORDINATOR = GroupSettings(
    group_initial_rebalance_delay_ms=100,
    consumer_session_timeout_ms=SESSION_MS,
    consumer_min_session_timeout_ms=6_000,
    consumer_heartbeat_interval_ms=1_000,
    consumer_min_heartbeat_interval_ms=500,
)


@dataclass(slots=True)
class Faults:
    """The probability that a call or an answer is lost, and the maximum delays."""

    loss: float = 0.0
    latency_ms: int = 20
    commit_ms: int = 10


@dataclass(slots=True)
class OpenCall:
    """A member's unanswered call."""

    member: SimMember
    call: Call


class SimMember:
    """A consumer: its membership, and an application that polls.

    ``owned`` are the partitions that the application reads.
    """

    def __init__(self, world: World, name: str, settings: MembershipSettings) -> None:
        self.world = world
        self.name = name
        self.settings = settings
        self.core: Membership = membership(settings, lambda: world.new_id("uuid-"), world.choose_backoff)
        self.topics: frozenset[str] = frozenset()
        self.owned: frozenset[Key] = frozenset()
        self.identity = MembershipChanged(-1, "")
        self.errors: list[TidelogError] = []
        self.revoked: list[Revoke] = []
        self.is_alive = True
        self.is_closing = False
        self.has_left = False
        self.stalled_until_ms = 0.0
        self.asked: frozenset[str] = frozenset()
        self._callbacks: list[Revoke | Assign] = []

    @property
    def is_fatal(self) -> bool:
        return any(error.error.fatal() for error in self.errors)

    @property
    def wants_partitions(self) -> bool:
        return self.is_alive and bool(self.topics) and not self.is_fatal

    @property
    def is_settled(self) -> bool:
        return not self._callbacks

    def step(self, event: Event) -> None:
        if not self.is_alive or self.has_left:
            return
        for command in self.core.step(event, self.world.now_ms):
            self._execute(command)
        self.core.check_invariants()
        self.world.check(self)

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.step(Subscribed(self.topics) if self.topics else Unsubscribed())

    def close(self) -> None:
        self.topics = frozenset()
        self.is_closing = True
        self.step(Closing())

    def poll(self) -> None:
        """Poll: run the waiting callbacks. A closing application runs them too."""
        if not self.is_alive or self.world.now_ms < self.stalled_until_ms:
            return
        self.step(Polled())
        while self._callbacks:
            command = self._callbacks.pop(0)
            if isinstance(command, Assign):
                assert not command.partitions & self.owned
                assert command.incremental or not self.owned
                self.owned |= command.partitions
            else:
                assert command.partitions <= self.owned
                self.owned -= command.partitions
                assert command.incremental or not self.owned
                self.revoked.append(command)
            self.world.check(self)
            self.step(RebalanceServed(command.rebalance_id))

    def tell_topics(self) -> None:
        if self.asked:
            known = {name: self.world.topics[name] for name in self.asked if name in self.world.topics}
            self.step(TopicsLearned(known))

    def _execute(self, command: Command) -> None:
        match command:
            case Call():
                self.world.send(self, command)
            case AskTopics():
                self.asked = command.topics
                self.world.later(self.world.latency(), self.tell_topics)
            case Revoke() | Assign():
                assert not self._callbacks
                self._callbacks.append(command)
            case MembershipChanged():
                self.identity = command
            case ReportError():
                self.errors.append(command.error)
            case Left():
                self.has_left = True
                self.is_alive = False
                assert not self.owned


@dataclass(slots=True)
class World:
    """One group. ``check`` runs after every change of a member."""

    seed: int
    protocol: str = "classic"
    assignors: tuple[str, ...] = ("range",)
    faults: Faults = field(default_factory=Faults)
    is_strict: bool = False
    """True if no partition may ever have two owners, as in a run without failures."""
    now_ms: float = BEGINNING_MS
    members: list[SimMember] = field(default_factory=list)
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    store: MemoryRecordStore = field(default_factory=MemoryRecordStore)
    random: random.Random = field(init=False)
    shard: GroupShard | None = field(init=False, default=None)
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0
    _ids: int = 0
    _open: dict[int, OpenCall] = field(default_factory=dict)
    _writes: list[tuple[int, tuple[ShardRecord, ...]]] = field(default_factory=list)
    _incarnation: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._take_over()

    # Actions of tests.

    def create_topic(self, name: str, partitions: int) -> None:
        known = self.topics.get(name)
        topic_id = known.topic_id if known else self.new_id("").encode().rjust(16, b"\0")
        self.topics[name] = KnownTopic(topic_id, partitions)
        self._tell_shard_topics()
        for member in self.members:
            self.later(self.latency(), member.tell_topics)

    def join(self, topics: Iterable[str], instance_id: str | None = None, protocol: str | None = None) -> SimMember:
        """Start a consumer with a subscription, by the world's protocol or another one."""
        settings = MembershipSettings(
            group_id=GROUP,
            group_protocol=protocol or self.protocol,
            group_instance_id=instance_id,
            assignors=self.assignors,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=MAX_POLL_MS,
            request_timeout_ms=5_000,
        )
        member = SimMember(self, f"member-{len(self.members)}", settings)
        self.members.append(member)
        self.later(self.random.uniform(0, POLL_MS), lambda: self._poll(member))
        member.subscribe(topics)
        return member

    def crash(self, member: SimMember) -> None:
        """Kill a member with SIGKILL, which breaks its connections."""
        member.is_alive = False
        member.owned = frozenset()
        for call_id in [call_id for call_id, open_call in self._open.items() if open_call.member is member]:
            del self._open[call_id]
            self._tell_shard(RequestAbandoned(call_id))

    def move_coordinator(self, down_ms: float) -> None:
        """Kill the partition's leader. The next one has all committed records, and maybe more."""
        committed = self.random.randint(0, len(self._writes))
        self.store.apply(record for _, records in self._writes[:committed] for record in records)
        self._writes.clear()
        self.shard = None
        self._incarnation += 1
        for call_id in list(self._open):
            self._answer(call_id, None)
        self.later(down_ms, self._take_over)

    def run(self, ms: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + ms
        while (due_ms := self._next_ms()) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            if self._agenda and self._agenda[0][0] <= self.now_ms:
                heappop(self._agenda)[2]()
                continue
            for member in self.members:
                if member.is_alive and (member.core.next_deadline_ms or float("inf")) <= self.now_ms:
                    member.step(TimePassed())
            if self.shard is not None and self.shard.next_deadline_ms <= self.now_ms:
                self._tell_shard(ShardTimePassed())
        self.now_ms = end_ms

    def settle(self, within_ms: float = 240_000) -> None:
        """Heal everything, and run until every partition with a possible owner is owned and stays so."""
        self.faults = Faults()
        end_ms = self.now_ms + within_ms
        calm_since = self.now_ms
        before = self.placement()
        while self.now_ms < calm_since + 2 * SESSION_MS or not self.is_complete():
            assert self.now_ms < end_ms, self.describe()
            self.run(500)
            if self.placement() != before:
                before, calm_since = self.placement(), self.now_ms

    def placement(self) -> dict[str, frozenset[Key]]:
        """Return the partitions of each live member."""
        return {member.name: member.owned for member in self.members if member.is_alive}

    def is_complete(self) -> bool:
        """Return whether every subscribed partition has exactly one owner, which subscribes to it."""
        live = [member for member in self.members if member.is_alive]
        wanted = {
            (topic, partition)
            for member in live
            if member.wants_partitions
            for topic in member.topics
            if topic in self.topics
            for partition in range(self.topics[topic].partitions)
        }
        owned = [key for member in live for key in member.owned]
        fits = all(key[0] in member.topics for member in live for key in member.owned)
        return sorted(owned) == sorted(wanted) and fits and all(member.is_settled for member in live)

    def describe(self) -> str:
        """Return the members' state, for a failed assertion."""
        lines = [
            f"{member.name} {member.settings.group_instance_id} {member.identity} topics={sorted(member.topics)} "
            f"owned={sorted(member.owned)} errors={member.errors}"
            for member in self.members
            if member.is_alive
        ]
        return "\n".join([f"at {self.now_ms - BEGINNING_MS:.0f} ms, seed {self.seed}", *lines])

    def check(self, changed: SimMember) -> None:
        """Assert that no partition has two owners in one generation.

        A member may read lost partitions until it learns of it.
        """
        if not self._counts(changed):
            return
        for other in self.members:
            if other is changed or not self._counts(other) or self._is_replaced(changed, other):
                continue
            both = changed.core.owned & other.core.owned
            assert not both or not self._same_generation(changed, other), f"{sorted(both)}\n{self.describe()}"

    def _counts(self, member: SimMember) -> bool:
        return member.is_alive and (self.is_strict or member.identity.generation_id >= 0)

    def _is_replaced(self, one: SimMember, other: SimMember) -> bool:
        """Return whether one member has replaced the other as a static member, whose member id is then fenced."""
        instance_id = one.settings.group_instance_id
        return instance_id is not None and instance_id == other.settings.group_instance_id

    def _same_generation(self, one: SimMember, other: SimMember) -> bool:
        if self.is_strict:
            return True
        epochs = self.epochs()
        if epochs is None:
            return one.identity.generation_id == other.identity.generation_id
        return all(epochs.get(member.identity.member_id) == member.identity.generation_id for member in (one, other))

    def epochs(self) -> dict[str, int] | None:
        """Return the epochs of the group's members, or None for a classic group or without a coordinator."""
        if self.shard is None:
            return None
        self._ids += 1
        responses = [
            command.response
            for command in self.shard.step(
                RequestReceived(-self._ids, messages.ConsumerGroupDescribeRequest((GROUP,)), ClientIdentity("", "")),
                int(self.now_ms),
            )
            if isinstance(command, Respond)
        ]
        (response,) = responses
        assert isinstance(response, messages.ConsumerGroupDescribeResponse)
        if response.groups[0].error is not None:
            return None
        return {each.member_id: each.member_epoch for each in response.groups[0].members}

    # The clock.

    def later(self, ms: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._agenda, (self.now_ms + ms, self._sequence, action))

    def latency(self) -> float:
        return self.random.uniform(0.1, self.faults.latency_ms)

    def choose_backoff(self, attempt: int) -> float:
        return min(100 * 2.0**attempt, 1_000) * self.random.uniform(0.8, 1.2)

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def _next_ms(self) -> float:
        deadlines = [member.core.next_deadline_ms for member in self.members if member.is_alive]
        if self.shard is not None:
            deadlines.append(self.shard.next_deadline_ms)
        if self._agenda:
            deadlines.append(self._agenda[0][0])
        return min((deadline for deadline in deadlines if deadline is not None), default=float("inf"))

    def _poll(self, member: SimMember) -> None:
        if member.is_alive:
            member.poll()
            self.later(POLL_MS, lambda: self._poll(member))

    # The network.

    def send(self, member: SimMember, call: Call) -> None:
        self._ids += 1
        call_id = self._ids
        self._open[call_id] = OpenCall(member, call)
        self.later(call.timeout_ms, lambda: self._time_out(call_id))
        if self.random.random() >= self.faults.loss:
            self.later(self.latency(), lambda: self._deliver(call_id))

    def _deliver(self, call_id: int) -> None:
        if call_id not in self._open:
            return
        request = self._open[call_id].call.request
        if self.shard is None:
            self._answer(call_id, self._refused(request) if self.random.random() < 0.5 else None)
        else:
            self._tell_shard(RequestReceived(call_id, _received(request), ClientIdentity("c", "h")))

    def _refused(self, request: MembershipRequest) -> MembershipResponse:
        return _sent(refuse(_received(request), error_for(ErrorCode.NOT_COORDINATOR)))

    def _answer(self, call_id: int, response: MembershipResponse | None) -> None:
        """Send an answer, or break the connection if it is None."""
        lost = self.random.random() < self.faults.loss
        open_call = self._open.pop(call_id, None) if not lost or response is None else None
        if open_call is None:
            return
        member, call = open_call.member, open_call.call
        event = CallFailed(call.call_id, error_for(ErrorCode._TRANSPORT))
        self.later(
            self.latency(), lambda: member.step(event if response is None else Responded(call.call_id, response))
        )

    def _time_out(self, call_id: int) -> None:
        open_call = self._open.pop(call_id, None)
        if open_call is not None:
            self._tell_shard(RequestAbandoned(call_id))
            open_call.member.step(CallFailed(open_call.call.call_id, error_for(ErrorCode._TIMED_OUT)))

    # The coordinator.

    def _take_over(self) -> None:
        self.shard = GroupShard(COORDINATOR, self.store, lambda prefix: self.new_id(f"{prefix}-"), int(self.now_ms))
        self._tell_shard_topics()

    def _tell_shard_topics(self) -> None:
        infos = {name: TopicInfo(topic.topic_id, name, topic.partitions) for name, topic in self.topics.items()}
        self._tell_shard(TopicsChanged(infos))

    def _tell_shard(self, event: ShardEvent) -> None:
        events: list[ShardEvent] = [event]
        while events and self.shard is not None:
            commands: list[ShardCommand] = self.shard.step(events.pop(0), int(self.now_ms))
            for command in commands:
                if isinstance(command, Respond):
                    self._answer(command.call_id, _sent(command.response))
                elif isinstance(command, WriteRecords):
                    self._write(command)
                    events.append(RecordsWritten(command.write_id))
            self.shard.check_invariants()

    def _write(self, command: WriteRecords) -> None:
        incarnation = self._incarnation
        self._writes.append((command.write_id, command.records))
        self.later(self.random.uniform(0, self.faults.commit_ms), lambda: self._commit(incarnation, command.write_id))

    def _commit(self, incarnation: int, write_id: int) -> None:
        """Commit this write and all earlier ones."""
        while incarnation == self._incarnation and self._writes and self._writes[0][0] <= write_id:
            first, records = self._writes.pop(0)
            self.store.apply(records)
            self._tell_shard(RecordsCommitted(first))


def _received(message: MembershipRequest) -> GroupRequest:
    """Return the request of a message, as the node's gRPC service converts it."""
    request: GroupRequest = codec_of(getattr(messages, type(message).__name__)).from_message(message)
    return request


def _sent(response: GroupResponse) -> MembershipResponse:
    message = codec_of(type(response)).to_message(response)
    assert isinstance(message, MembershipResponse)
    return message
