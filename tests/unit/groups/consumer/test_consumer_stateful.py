"""Random groups: whatever members, topics and coordinators do, no partition has two owners, and all comes to rest.

Members heartbeat, lose answers, take their time, die, come back, change subscriptions; topics come, grow and go;
writes fail; coordinators move to what is left of the log after its compaction. An owner is who may be working on a
partition and is still in the group: whom the coordinator has removed it cannot stop.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import count

from consumer_groups import CLIENT, GroupClient, GroupHarness, topic
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.messages import ConsumerGroupHeartbeatRequest
from tidelog_node.groups.records import decode
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.shards.events import ShardRecord

SETTINGS = GroupSettings(
    consumer_min_session_timeout_ms=6_000,
    consumer_session_timeout_ms=6_000,
    consumer_min_heartbeat_interval_ms=1_000,
    consumer_heartbeat_interval_ms=1_000,
    consumer_max_size=5,
)
TOPICS = ["a1", "a2", "b1"]
CLIENTS = st.integers(0, 4)
NAMES = st.sampled_from([{"a1"}, {"b1"}, {"a1", "b1"}, {"a1", "b1"}, {"a1", "a2", "b1"}, set()])
PATTERNS = st.sampled_from([None, None, "a.", "b.*", ".*2"])
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
REJOIN = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}


class Group(RuleBasedStateMachine):
    """A group, its clients that are alive, and the topics of the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = GroupHarness(settings=SETTINGS)
        self.clients: list[GroupClient] = []
        self.ids = count(1)
        self.topic_numbers = count(1)
        self.all_topics = {"a1": topic("a1", 3), "b1": topic("b1", 1)}
        self.harness.change_topics(*self.all_topics.values())

    @initialize(instance=INSTANCES, names=NAMES)
    def begin(self, instance: str | None, names: set[str]) -> None:
        self.start({"a1", "b1"}, None, instance)
        self.start({"a1", "b1"}, None, None)
        self.start(names, None, None)

    def client(self, index: int) -> GroupClient:
        return self.clients[index % len(self.clients)]

    @precondition(lambda self: len(self.clients) < 5)
    @rule(names=NAMES, regex=PATTERNS, instance=INSTANCES)
    def start(self, names: set[str], regex: str | None, instance: str | None) -> None:
        """A process starts: if it has the instance id of a live one, either of them is refused."""
        self.clients.append(GroupClient(f"m{next(self.ids)}", names, regex, instance))
        self.beat(len(self.clients) - 1)

    @rule(finishing=st.booleans())
    def beat_all(self, finishing: bool) -> None:
        for client in list(self.clients):
            if finishing:
                client.finish_revocation()
            self.beat(self.clients.index(client))

    @precondition(lambda self: self.clients)
    @rule(index=CLIENTS)
    def beat(self, index: int) -> None:
        client = self.client(index)
        try:
            response = self.harness.send(client.request())
        except TidelogError as error:
            self.refuse(client, error)
        else:
            client.receive(response)

    def refuse(self, client: GroupClient, error: TidelogError) -> None:
        if error.code in REJOIN:
            client.lose_all()
        elif error.code is ErrorCode.FENCED_INSTANCE_ID:
            self.clients.remove(client)
        else:
            assert error.code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED), error
            assert client.epoch == 0

    @precondition(lambda self: self.clients)
    @rule(index=CLIENTS)
    def lose_answer(self, index: int) -> None:
        client = self.client(index)
        with suppress(TidelogError):
            self.harness.send(client.request())
        client.miss()

    @precondition(lambda self: self.clients)
    @rule(index=CLIENTS)
    def fail_write(self, index: int) -> None:
        client = self.client(index)
        group = self.harness.group
        with suppress(TidelogError):
            group.heartbeat(client.request(), CLIENT, self.harness.topics, self.harness.now_ms)
        client.miss()

    @precondition(lambda self: self.clients)
    @rule(index=CLIENTS)
    def finish_revocation(self, index: int) -> None:
        self.client(index).finish_revocation()

    @precondition(lambda self: self.clients)
    @rule(index=CLIENTS, names=NAMES, regex=PATTERNS)
    def subscribe(self, index: int, names: set[str], regex: str | None) -> None:
        self.client(index).subscribe(names, regex)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(index=CLIENTS, is_heard=st.booleans(), for_good=st.booleans())
    def stop(self, index: int, is_heard: bool, for_good: bool) -> None:
        """A process leaves, for good or as a static member; unheard, it has crashed."""
        client = self.client(index)
        self.clients.remove(client)
        if is_heard:
            epoch = -1 if for_good or client.instance_id is None else -2
            request = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=client.member_id, member_epoch=epoch, group_instance_id=client.instance_id
            )
            with suppress(TidelogError):
                self.harness.send(request)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def change_topic(self, name: str, partitions: int) -> None:
        """A topic grows, or is created; one that would shrink is made again."""
        known = self.all_topics.get(name)
        if known is not None and known.partitions <= partitions:
            self.all_topics[name] = TopicInfo(known.topic_id, name, partitions)
        else:
            self.all_topics[name] = topic(name, partitions, next(self.topic_numbers) % 256)
        self.harness.change_topics(*self.all_topics.values())

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.all_topics.pop(name, None)
        self.harness.change_topics(*self.all_topics.values())

    @rule(elapsed_ms=st.integers(100, 4_000))
    def pass_time(self, elapsed_ms: int) -> None:
        self.harness.pass_time(elapsed_ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.group = self.harness.load()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        state = self.harness.group.state
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            if client.member_id in state.members:
                for partition in client.holds:
                    other = owners.setdefault(partition, client.member_id)
                    assert other == client.member_id, (partition, other, client.member_id)
                    assert state.owner_of(partition) == client.member_id

    @invariant()
    def records_give_the_same_state(self) -> None:
        replayed = GroupState("g")
        for record in self.harness.log:
            decoded = decode(record)
            assert decoded is not None
            replayed.replay(*decoded)
        assert persistent(replayed) == persistent(self.harness.group.state)
        assert persistent(self.harness.load().state) == persistent(replayed)
        self.harness.group.check_invariants()

    def teardown(self) -> None:
        """The faults end: all comes to rest, with every partition at a live subscriber."""
        for _ in range(30):
            self.beat_all(True)
            self.harness.pass_time(1_000)
            self.no_partition_has_two_owners()
        group = self.harness.group
        members = [client for client in self.clients if client.member_id in group.state.members]
        # Of live processes with one instance id, one is in the group.
        refused = [client for client in self.clients if client not in members]
        assert {client.instance_id for client in refused} <= {client.instance_id for client in members} - {None}
        assert set(group.state.members) == {client.member_id for client in members}
        if not members:
            assert group.state_name in ("Empty", "Dead")
            return
        assert group.state_name == "Stable", group.describe()
        assert all(client.epoch == group.state.group_epoch for client in members)
        held = [partition for client in members for partition in client.holds]
        wanted = frozenset[tuple[bytes, int]]().union(*(self.wanted_by(client) for client in members))
        assert len(held) == len(set(held))
        assert set(held) == wanted
        assert all(client.holds <= self.wanted_by(client) for client in members)

    def wanted_by(self, client: GroupClient) -> Assignment:
        """Return all partitions of the topics that a client subscribes to."""
        topics = [
            t
            for name, t in self.all_topics.items()
            if name in client.names or (client.regex is not None and re.fullmatch(client.regex, name))
        ]
        return frozenset((t.topic_id, index) for t in topics for index in range(t.partitions))


def persistent(state: GroupState) -> tuple[object, ...]:
    """Return all that records say."""
    return (
        state.metadata,
        state.target_metadata,
        state.members,
        {member_id: target for member_id, target in state.targets.items() if target},
        state.regular_expressions,
        state.static_members,
        state.subscribed_topics(),
    )


def test_group_keeps_its_promises_whatever_happens() -> None:
    run_state_machine_as_test(
        Group,
        settings=settings(max_examples=examples(40), stateful_step_count=steps(40), deadline=None, print_blob=True),
    )


def test_group_is_loaded_from_records_in_the_order_of_their_keys() -> None:
    harness = GroupHarness(topic("a1", 3))
    harness.join("m1", "a1", instance_id="i1")
    harness.join("m2", "a1", regex="b.*")
    assert persistent(harness.load().state) == persistent(harness.group.state)
    assert all(isinstance(record, ShardRecord) for record in harness.log)
