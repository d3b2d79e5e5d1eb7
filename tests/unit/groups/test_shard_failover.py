"""Groups whose coordinator dies at any time: what was acknowledged is there, and every call has its answer.

Members join, heartbeat and commit; writes are refused, committed late, lost with their leader or kept without a word;
groups, offsets and topics are deleted; the time of day jumps. Every commit has an offset of its own, the later the
greater, so that an offset says by itself whether it is older than another, or than a deletion.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from group_shards import (
    ShardHarness,
    TransactionalStore,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    heartbeat_request,
    join_request,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import (
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
)
from tidelog_node.groups.records import encode
from tidelog_node.groups.settings import GroupSettings

STEPS = 150
TOPICS = {"t": 2, "u": 2}
PARTITIONS = [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
GROUPS = ("simple", "classic", "next")
HOUR_MS = 3_600_000
SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=0, offsets_retention_ms=10**12, offsets_retention_check_interval_ms=20_000
)
FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class Client:
    """A member, or a consumer without a group, as it sees itself; it waits for one call at a time."""

    group: str
    protocol: str
    number: int
    member_id: str = ""
    epoch: int = -1
    leads: tuple[str, ...] = ()
    tries: int = 0
    assigned: bytes = b""
    is_synced: bool = False
    call: int | None = None
    doing: str = ""

    def request(self) -> tuple[str, Any]:
        """Return what it does next, but for commits."""
        if self.protocol == "consumer":
            self.member_id = self.member_id or f"{self.group}-{self.number}"
            epoch = max(self.epoch, 0)
            return "beat", consumer_heartbeat_request(self.member_id, epoch, group=self.group, topics=TOPICS)
        if self.epoch < 0:
            return "join", join_request(self.member_id, group=self.group)
        if not self.is_synced:
            # A leader need not come to the same assignment twice.
            self.tries += 1
            given = dict.fromkeys(self.leads, f"{self.epoch} {self.member_id} {self.tries}".encode())
            return "sync", sync_request(self.member_id, self.epoch, given, group=self.group)
        return "heartbeat", heartbeat_request(self.member_id, self.epoch, group=self.group)

    def commit(self, partition: tuple[str, int], offset: int) -> OffsetCommitRequest:
        is_member = self.protocol != "simple"
        return commit_request(
            {partition: offset},
            group=self.group,
            member_id=self.member_id if is_member else "",
            generation=self.epoch if is_member else -1,
        )

    def receive(self, answer: Any) -> None:
        if self.doing == "commit":
            return
        if answer.error is not None:
            self.epoch, self.is_synced = -1, False
            if answer.error.code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif answer.error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.member_id = ""
        elif self.doing == "beat":
            self.epoch = answer.member_epoch
        elif self.doing == "join":
            self.member_id, self.epoch, self.is_synced = answer.member_id, answer.generation_id, False
            self.leads = tuple(member.member_id for member in answer.members)
        elif self.doing == "sync":
            assert not answer.assignment or answer.assignment.startswith(f"{self.epoch} ".encode())
            self.assigned, self.is_synced = answer.assignment, True


@dataclass
class Simulation:
    """``floor`` is the greatest offset that was acknowledged or seen, ``barrier`` the one before the last deletion."""

    seed: int
    random: random.Random = field(init=False)
    harness: ShardHarness = field(init=False)
    clients: list[Client] = field(init=False)
    offset: int = 0
    floor: dict[tuple[str, tuple[str, int]], int] = field(default_factory=dict)
    barrier: dict[tuple[str, tuple[str, int]], int] = field(default_factory=dict)
    commits: dict[int, tuple[str, tuple[str, int], int]] = field(default_factory=dict)
    calls: set[int] = field(default_factory=set)
    assigned: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.harness = ShardHarness(SETTINGS)
        self.harness.holds_commits = True
        self.harness.set_topics(**TOPICS)
        groups = [("simple", "simple"), ("classic", "classic"), ("classic", "classic"), ("next", "consumer")]
        groups.append(("next", "consumer"))
        self.clients = [Client(group, protocol, number) for number, (group, protocol) in enumerate(groups)]

    def run(self) -> None:
        steps = [self.go_on] * 6 + [self.commit] * 6 + [self.let_commit] * 4 + [self.pass_time] * 3
        steps += [self.refuse_writes, self.crash, self.abandon, self.delete, self.make_topic_again, self.set_clock]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.look()
        self.heal()

    def send(self, request: Any) -> int:
        call = self.harness.send(request)
        self.calls.add(call)
        return call

    def go_on(self) -> None:
        client = self.random.choice(self.clients)
        if client.call is None and client.protocol != "simple":
            client.doing, request = client.request()
            client.call = self.send(request)

    def commit(self) -> None:
        client, partition = self.random.choice(self.clients), self.random.choice(PARTITIONS)
        self.offset += 1
        call = self.send(client.commit(partition, self.offset))
        self.commits[call] = (client.group, partition, self.offset)

    def let_commit(self) -> None:
        self.harness.commit(self.random.randint(0, len(self.harness.uncommitted)))

    def pass_time(self) -> None:
        self.harness.pass_time(self.random.choice([0, 1, 1_000, 5_000, 20_000, 60_000]))

    def refuse_writes(self) -> None:
        self.harness.fails_writes = self.random.choice([None, *FAILURES])

    def set_clock(self) -> None:
        self.harness.clock_error_ms = self.random.choice([-HOUR_MS, 0, HOUR_MS])

    def abandon(self) -> None:
        call = self.random.choice([*self.calls, None])
        if call is not None:
            self.harness.abandon(call)
            self.forget(call)

    def forget(self, *calls: int) -> None:
        self.calls.difference_update(calls)
        for client in self.clients:
            if client.call in calls:
                client.call = None

    def crash(self) -> None:
        self.look()
        self.harness.fails_writes = None
        kept = self.random.randint(0, len(self.harness.uncommitted))
        self.forget(*self.calls)
        self.commits.clear()
        self.harness.reload(kept=kept)
        self.harness.set_topics(**TOPICS)

    def delete(self) -> None:
        group = self.random.choice(self.clients).group
        if self.random.random() < 0.5:
            self.send(DeleteGroupsRequest(group_ids=(group,)))
            # It may begin anew, with the first generation.
            self.assigned = {key: value for key, value in self.assigned.items() if key[0] != group}
            self.note_deletion(group, *PARTITIONS)
        else:
            topic, index = self.random.choice(PARTITIONS)
            named = TopicPartitions(name=topic, partitions=(index,))
            self.send(OffsetDeleteRequest(group_id=group, topics=(named,)))
            self.note_deletion(group, (topic, index))

    def make_topic_again(self) -> None:
        self.harness.topics = {"t": self.harness.topics["t"]}
        self.harness.set_topics(**TOPICS)
        for client in self.clients:
            self.note_deletion(client.group, ("u", 0), ("u", 1))

    def note_deletion(self, group: str, *partitions: tuple[str, int]) -> None:
        for partition in partitions:
            self.barrier[group, partition] = self.offset
            self.floor.pop((group, partition), None)

    def look(self) -> None:
        for call in [call for call in self.calls if call in self.harness.responses]:
            answer = self.harness.responses[call]
            self.calls.discard(call)
            for client in self.clients:
                if client.call == call:
                    client.call = None
                    client.receive(answer)
                    self.look_at_assignment(client)
            if call in self.commits:
                group, partition, offset = self.commits.pop(call)
                if answer.topics[0].partitions[0].error is None:
                    self.raise_floor(group, partition, offset)
        for group in GROUPS:
            found = fetched_offsets(self.harness, group)
            for partition in PARTITIONS:
                offset = found.get(partition, -1)
                assert offset >= self.floor.get((group, partition), -1), (group, partition)
                self.raise_floor(group, partition, offset)

    def look_at_assignment(self, client: Client) -> None:
        """All members of a generation are assigned by one leader at one time, by whichever coordinator."""
        if client.doing == "sync" and client.assigned and client.is_synced:
            known = self.assigned.setdefault((client.group, client.epoch), client.assigned)
            assert known == client.assigned

    def raise_floor(self, group: str, partition: tuple[str, int], offset: int) -> None:
        key = group, partition
        if offset > self.barrier.get(key, 0):
            self.floor[key] = max(offset, self.floor.get(key, -1))

    def heal(self) -> None:
        self.harness.fails_writes = None
        self.make_topic_again()
        self.offset += 1
        self.send(self.clients[0].commit(("u", 0), self.offset))
        for _ in range(6):
            self.harness.pass_time(60_000)
            self.look()
            self.harness.holds_commits = False
            self.harness.commit()
        assert not self.calls, "every call has its answer"
        of_new_topic = [{p: o for p, o in fetched_offsets(self.harness, g).items() if p[0] == "u"} for g in GROUPS]
        assert of_new_topic == [{("u", 0): self.offset}, {}, {}]
        self.all_groups_work()
        self.log_says_all()

    def all_groups_work(self) -> None:
        for _ in range(12):
            for client in self.clients:
                if client.call is None and client.protocol != "simple":
                    client.doing, request = client.request()
                    client.call = self.send(request)
            self.harness.pass_time(1_000)
            self.look()
        for client in self.clients:
            assert client.protocol != "classic" or client.is_synced
            assert client.protocol != "consumer" or client.epoch > 0
            self.offset += 1
            answer = self.harness.call(client.commit(("t", 0), self.offset))
            assert answer.topics[0].partitions[0].error is None, answer

    def log_says_all(self) -> None:
        """Assert that another coordinator reads the same state from the log."""
        before = {group: fetched_offsets(self.harness, group) for group in GROUPS}
        self.harness.reload()
        assert before == {group: fetched_offsets(self.harness, group) for group in GROUPS}


@pytest.mark.parametrize("seed", range(25))
def test_groups_keep_what_they_acknowledged_whatever_becomes_of_their_coordinator(seed: int) -> None:
    Simulation(seed).run()


def test_commit_of_an_older_offset_is_found() -> None:
    """The simulation sees what it looks for: here a log that has lost its last commit."""
    simulation = Simulation(0)
    simulation.harness.holds_commits = False
    for _ in range(20):
        simulation.commit()
    simulation.look()
    records = [encode(key, value) for key, value in simulation.harness.log[:-5]]
    simulation.harness.store = TransactionalStore(records)
    simulation.harness.reload()
    with pytest.raises(AssertionError, match="simple"):
        simulation.look()
