"""A classic group under random members, failed writes and new coordinators: what must hold, whatever happens.

Whoever is given an assignment has that of its generation, the same one for all its members, with every coordinator;
offsets that were seen or confirmed never go back; every call has one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from example_counts import examples, steps
from group_shards import (
    ShardHarness,
    commit_request,
    fetched_offsets,
    heartbeat_request,
    join_request,
    sync_request,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import JoinGroupResponse, LeaveGroupRequest, LeavingMember, SyncGroupResponse
from tidelog_node.groups.settings import GroupSettings

SLOTS = 5
SLOT = st.integers(0, SLOTS - 1)
INSTANCES = {0: "static-a", 1: "static-b", 2: "static-b"}
"""Two slots have one instance id: they fence each other."""
FAILURES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
OFFSET = ("t", 0)


@dataclass
class Client:
    """A member as it sees itself; its call is what it waits for."""

    slot: int
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] | None = None
    """The members that it has to assign to."""
    is_synced: bool = False
    call: int | None = None
    doing: str = ""

    @property
    def instance(self) -> str | None:
        return INSTANCES.get(self.slot)


class ClassicGroupMachine(RuleBasedStateMachine):
    """Each rule is one thing that happens; what was answered is looked at after each."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([3, 100, 100]))
    def begin(self, delay_ms: int, size: int) -> None:
        self.harness = ShardHarness(
            GroupSettings(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size, offsets_retention_ms=10**12)
        )
        self.clients = [Client(slot) for slot in range(SLOTS)]
        self.nonce = 0
        self.assigned: dict[int, str] = {}
        self.commits: dict[int, int] = {}
        self.next_offset = 0
        self.seen = -1
        # The group is never deleted, so that its generations do not begin anew.
        self.harness.call(commit_request({OFFSET: 0}))

    def _send(self, client: Client, doing: str, request: Any) -> None:
        self._forget_call(client)
        client.call, client.doing = self.harness.send(request), doing
        self._look(client)

    def _forget_call(self, client: Client) -> None:
        if client.call is not None:
            self.harness.abandon(client.call)
            client.call = None

    @rule(slot=SLOT, protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]))
    def join(self, slot: int, protocols: tuple[str, ...]) -> None:
        client = self.clients[slot]
        named = [(name, b"") for name in protocols]
        self._send(client, "join", join_request(client.member_id, instance=client.instance, protocols=named))

    @rule(slots=st.lists(SLOT, min_size=1, max_size=SLOTS, unique=True), rounds=st.integers(1, 8))
    def live(self, slots: list[int], rounds: int) -> None:
        """Let some members do what members do, and time pass meanwhile."""
        for _ in range(rounds):
            for slot in slots:
                self._go_on(self.clients[slot])
            self.harness.pass_time(1_000)
            self.what_was_answered_is_right()

    def _go_on(self, client: Client) -> None:
        self._look(client)
        if client.call is not None:
            return
        if client.generation < 0:
            self._send(client, "join", join_request(client.member_id, instance=client.instance))
        elif client.is_synced:
            self._heartbeat(client)
        else:
            self._sync(client)

    def _sync(self, client: Client) -> None:
        assignments = {}
        if client.leads is not None:
            self.nonce += 1
            assignments = {name: f"{client.generation}/{self.nonce}".encode() for name in client.leads}
        request = sync_request(client.member_id, client.generation, assignments, instance=client.instance, protocol="")
        self._send(client, "sync", request)

    def _heartbeat(self, client: Client) -> None:
        request = heartbeat_request(client.member_id, client.generation, instance=client.instance)
        answer = self.harness.call(request)
        if answer.error is not None:
            client.generation, client.is_synced = -1, False
            if answer.error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.member_id = ""

    @rule(slot=SLOT)
    def heartbeat(self, slot: int) -> None:
        if self.clients[slot].call is None:
            self._heartbeat(self.clients[slot])

    @rule(slot=SLOT)
    def leave(self, slot: int) -> None:
        client = self.clients[slot]
        leaving = LeavingMember(member_id=client.member_id, group_instance_id=client.instance)
        answer = self.harness.call(LeaveGroupRequest(group_id="g", members=(leaving,)))
        assert not answer.members or len(answer.members) == 1
        self._look(client)
        self.crash(slot)

    @rule(slot=SLOT)
    def crash(self, slot: int) -> None:
        self._forget_call(self.clients[slot])
        self.clients[slot] = Client(slot)

    @rule(slot=SLOT)
    def abandon(self, slot: int) -> None:
        self._forget_call(self.clients[slot])

    @rule(slot=SLOT)
    def commit_offset(self, slot: int) -> None:
        client = self.clients[slot]
        self.next_offset += 1
        request = commit_request(
            {OFFSET: self.next_offset},
            member_id=client.member_id,
            generation=client.generation,
            instance=client.instance,
        )
        self.commits[self.harness.send(request)] = self.next_offset

    @rule(ms=st.sampled_from([0, 1, 1_000, 3_000, 9_999, 10_000, 60_000]))
    def pass_time(self, ms: int) -> None:
        self.harness.pass_time(ms)

    @rule(holds=st.booleans())
    def hold_commits(self, holds: bool) -> None:
        self.harness.holds_commits = holds
        if not holds:
            self.harness.commit()

    @rule()
    def commit_one(self) -> None:
        self.harness.commit(min(1, len(self.harness.uncommitted)))

    @rule(failure=st.sampled_from([None, None, *FAILURES]))
    def fail_writes(self, failure: ErrorCode | None) -> None:
        self.harness.fails_writes = failure

    @rule()
    def give_up_writes(self) -> None:
        self.harness.fail_written()

    @rule(data=st.data())
    def another_coordinator(self, data: st.DataObject) -> None:
        committed = data.draw(st.integers(0, len(self.harness.uncommitted)))
        self._reload(committed, data.draw(st.integers(0, SLOTS)))

    def _reload(self, committed: int, unsure: int) -> None:
        self.what_was_answered_is_right()
        self.harness.commit(committed)
        self.what_was_answered_is_right()
        for client in self.clients:
            client.call = None
        self.commits.clear()
        self.harness.reload(unsure)

    @rule(before=st.integers(2, 8))
    def lose_what_is_not_committed(self, before: int) -> None:
        """A coordinator dies in the middle; all members go on with the next one."""
        self.harness.fails_writes = None
        everyone = list(range(SLOTS))
        self.harness.holds_commits = True
        self.live(everyone, before)
        self._reload(0, 0)
        self.harness.holds_commits = False
        self.live(everyone, 8)

    @invariant()
    def what_was_answered_is_right(self) -> None:
        for client in self.clients:
            self._look(client)
        self._look_at_commits()
        self._fetch()

    def _fetch(self) -> None:
        offset = fetched_offsets(self.harness)[OFFSET]
        assert offset >= self.seen
        self.seen = offset

    def _look_at_commits(self) -> None:
        for call in [call for call in self.commits if call in self.harness.responses]:
            offset = self.commits.pop(call)
            if self.harness.responses[call].topics[0].partitions[0].error is None:
                assert fetched_offsets(self.harness)[OFFSET] >= offset

    def _look(self, client: Client) -> None:
        answer = self.harness.responses.get(client.call) if client.call is not None else None
        if answer is None:
            return
        client.call = None
        if client.doing == "join":
            self._joined(client, answer)
        else:
            self._synced(client, answer)

    def _joined(self, client: Client, answer: JoinGroupResponse) -> None:
        if answer.error is not None:
            code = answer.error.code
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            client.generation, client.leads, client.is_synced = -1, None, False
            return
        client.is_synced = False
        client.member_id, client.generation = answer.member_id, answer.generation_id
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        client.leads = tuple(member.member_id for member in answer.members) if leads and answer.members else None
        if answer.members:
            assert answer.member_id in [member.member_id for member in answer.members]
            assert answer.leader == answer.member_id

    def _synced(self, client: Client, answer: SyncGroupResponse) -> None:
        if answer.error is not None:
            if answer.error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            client.generation, client.leads = -1, None
            return
        client.is_synced = True
        if answer.assignment:
            generation, nonce = answer.assignment.decode().split("/")
            assert int(generation) == client.generation
            assert self.assigned.setdefault(client.generation, nonce) == nonce

    def teardown(self) -> None:
        """Heal all: no call stays open."""
        if not hasattr(self, "harness"):
            return
        self.harness.fails_writes = None
        self.harness.holds_commits = False
        self.harness.commit()
        for _ in range(20):
            self.harness.pass_time(60_000)
        for client in self.clients:
            assert client.call is None or client.call in self.harness.responses
        assert not self.commits.keys() - self.harness.responses.keys()


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=examples(40), stateful_step_count=steps(30), deadline=None)
