"""A leader that mirrors a partition of another cluster: its epochs, its high watermark, and its replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.replication import PartitionState, find_divergence
from tidelog_node.replication.commands import (
    AbortMirroredTransactions,
    AdvanceHighWatermark,
    AdvanceLogStart,
    AssignEpochStart,
    StopFetching,
    TruncateTo,
)
from tidelog_node.replication.events import (
    EligibleBrokersChanged,
    FollowerFetched,
    LogCut,
    LogDiverged,
    LogRestarted,
    RecordsAppended,
    RecordsReplicated,
    RegistrationChanged,
    SourceStartMoved,
)
from tidelog_node.replication.mirroring import MirrorTerm, Step, whole_batches
from tidelog_node.replication.truncation import EpochEnd, truncation_offset

EPOCHS = {BrokerId(1): BrokerEpoch(10), BrokerId(2): BrokerEpoch(20), BrokerId(3): BrokerEpoch(30)}
NODES = (BrokerId(1), BrokerId(2), BrokerId(3))


def leader_of_mirror(log_end: int = 0, high_watermark: int = 0) -> PartitionState:
    state = PartitionState(NODES[0], high_watermark, 1, 1_000)
    state.step(EligibleBrokersChanged(EPOCHS, EPOCHS), 0)
    assert state.step(registered(1, log_end=log_end), 0)[:1] == [StopFetching()]
    return state


def registered(epoch: int, leader: int = 1, log_end: int = 0, is_mirror: bool = True, end: int = 0):
    partition_epoch = PartitionEpoch(epoch)
    ids = BrokerId(leader), LeaderEpoch(epoch), partition_epoch
    return RegistrationChanged(NODES, frozenset(NODES), *ids, log_end, is_mirror, LeaderEpoch(end))


def fetched(state: PartitionState, node: int, offset: int):
    return state.step(FollowerFetched(BrokerId(node), EPOCHS[BrokerId(node)], offset, 0), 0)


def test_leader_of_a_mirror_begins_no_epoch_until_the_mirror_has_ended() -> None:
    state = leader_of_mirror(log_end=7)
    assert state.leader is not None
    assert state.leader.is_mirror
    commands = state.step(registered(5, log_end=9, is_mirror=False, end=5), 0)
    assert commands == [StopFetching(), AssignEpochStart(LeaderEpoch(5), 9), AbortMirroredTransactions(LeaderEpoch(5))]


def test_truncated_mirror_counts_followers_only_once_they_have_fetched_again() -> None:
    state = leader_of_mirror(log_end=10)
    fetched(state, 2, 10)
    assert fetched(state, 3, 10) == [AdvanceHighWatermark(10)]
    state.step(LogCut(6), 0)
    state.check_invariants()
    assert state.high_watermark == 6
    assert state.step(RecordsAppended(12), 0) == []
    assert fetched(state, 2, 12) == []
    assert fetched(state, 3, 9) == [AdvanceHighWatermark(9)]


def test_restarted_mirror_begins_at_the_log_start_of_its_source() -> None:
    state = leader_of_mirror(log_end=3)
    assert state.step(LogRestarted(100), 0) == []
    state.check_invariants()
    assert state.high_watermark == 100


def test_mirror_deletes_what_its_source_has_deleted_up_to_its_high_watermark() -> None:
    state = leader_of_mirror(log_end=10)
    assert state.step(SourceStartMoved(4, 0), 0) == []
    fetched(state, 2, 10)
    fetched(state, 3, 10)
    assert state.step(SourceStartMoved(4, 0), 0) == [AdvanceLogStart(4)]
    assert state.step(SourceStartMoved(40, 0), 0) == [AdvanceLogStart(10)]


def test_term_fetches_once_its_epoch_is_that_of_the_source() -> None:
    term = MirrorTerm(LeaderEpoch(3))
    assert term.next_step is Step.AWAIT_SOURCE
    term.learn_source(LeaderEpoch(7))
    assert (term.next_step, term.least_epoch) == (Step.RAISE_EPOCH, 7)
    term = MirrorTerm(LeaderEpoch(7))
    term.learn_source(LeaderEpoch(7))
    term.learn_source(LeaderEpoch(6))
    assert (term.next_step, term.source_epoch) == (Step.FETCH, 7)
    term.note_truncated()
    assert (term.next_step, term.least_epoch) == (Step.RAISE_EPOCH, 8)


@given(st.lists(st.integers(0, 60), max_size=5), st.integers(0, 80))
def test_last_batch_that_is_cut_off_is_left_out(sizes: list[int], cut: int) -> None:
    batches = [bytes(8) + size.to_bytes(4) + bytes(size) for size in sizes]
    data = b"".join(batches)[: max(0, sum(map(len, batches)) - cut)]
    kept, end = 0, 0
    while kept < len(batches) and end + len(batches[kept]) <= len(data):
        end += len(batches[kept])
        kept += 1
    assert bytes(whole_batches(data)) == data[:end]


@dataclass
class Replica:
    """A replica as its log, the epoch of each offset, and its state machine."""

    node: BrokerId
    log: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = PartitionState(self.node, 0, 1, 10**9)
        self.state.step(EligibleBrokersChanged(EPOCHS, EPOCHS), 0)

    def end_of(self, epoch: int) -> EpochEnd | None:
        return end_of(self.log, epoch)


def end_of(log: list[int], epoch: int) -> EpochEnd | None:
    """Return the largest epoch of a log that is not above ``epoch``, with its end."""
    lower = [e for e in log if e <= epoch]
    if lower:
        return EpochEnd(LeaderEpoch(lower[-1]), len(lower))
    return EpochEnd(LeaderEpoch(epoch), 0) if log else None


class Model:
    """A mirror with three replicas, all in sync, whose source has clean and unclean elections.

    A record is the epoch in which it was written on the source: with its offset, this names it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.source: list[int] = []
        self.source_epoch = 0
        self.replicas = {node: Replica(node) for node in NODES}
        self.epoch, self.leader = 0, NODES[0]
        self.term = MirrorTerm(LeaderEpoch(0))
        self.in_flight: list[tuple[BrokerId, int, int, int]] = []
        self.elect(NODES[0])

    def elect(self, leader: BrokerId, least: int = 0) -> None:
        """Elect an in-sync replica, or the same one in a higher epoch; all replicas learn of it."""
        self.epoch, self.leader = max(self.epoch + 1, least), leader
        self.term = MirrorTerm(LeaderEpoch(self.epoch))
        for replica in self.replicas.values():
            self.step(replica, registered(self.epoch, leader, len(replica.log)))

    def step(self, replica: Replica, event) -> None:
        for command in replica.state.step(event, 0):
            match command:
                case TruncateTo():
                    del replica.log[command.offset :]
                case AdvanceHighWatermark() if replica.node == self.leader:
                    committed = replica.log[: command.offset]
                    for other in self.replicas.values():
                        assert other.log[: command.offset] == committed, (self.leader, other, committed)
        replica.state.check_invariants()

    def change_source(self) -> None:
        """Append to the source, or elect another leader there, perhaps one that lacks records."""
        if self.random.random() < 0.7:
            self.source += [self.source_epoch] * self.random.randint(1, 4)
            return
        self.source_epoch += self.random.randint(1, 3)
        if self.random.random() < 0.5 and self.source:
            del self.source[self.random.randrange(len(self.source)) :]

    def fetch_from_source(self) -> None:
        """Let the mirror's leader take its next step."""
        leader, term = self.replicas[self.leader], self.term
        term.learn_source(LeaderEpoch(self.source_epoch))
        if term.next_step is Step.RAISE_EPOCH:
            self.elect(self.leader, term.least_epoch)
            return
        offset = len(leader.log)
        if leader.log:
            found = end_of(self.source, leader.log[-1])
            if found is None:
                # The source is empty: it begins at this offset once it has records again.
                return
            diverging = find_divergence(LeaderEpoch(leader.log[-1]), offset, found)
            if diverging is not None:
                own = leader.end_of(diverging.epoch)
                del leader.log[truncation_offset(diverging, own, offset) :]
                self.step(leader, LogCut(len(leader.log)))
                term.note_truncated()
                return
        records = self.source[offset : offset + self.random.randint(1, 3)]
        if records:
            leader.log += records
            self.step(leader, RecordsAppended(len(leader.log)))

    def send_fetch(self) -> None:
        """Send a follower's fetch, which may arrive much later."""
        follower = self.replicas[self.random.choice([n for n in NODES if n != self.leader])]
        last = follower.log[-1] if follower.log else -1
        self.in_flight.append((follower.node, self.epoch, len(follower.log), last))

    def deliver_fetch(self) -> None:
        """Answer a fetch, and let the follower take the answer unless its log has changed meanwhile."""
        if not self.in_flight:
            return
        node, epoch, offset, last = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        leader, follower = self.replicas[self.leader], self.replicas[node]
        if epoch != self.epoch or node == self.leader:
            return
        is_expected = len(follower.log) == offset and (follower.log[-1] if follower.log else -1) == last
        found = leader.end_of(last) if last >= 0 else None
        if last >= 0 and found is None:
            return
        diverging = find_divergence(LeaderEpoch(last), offset, found) if found is not None else None
        if diverging is not None:
            if is_expected:
                own = follower.end_of(diverging.epoch)
                self.step(follower, LogDiverged(LeaderEpoch(epoch), diverging, own, len(follower.log)))
            return
        if offset > len(leader.log):
            return
        records = leader.log[offset : offset + self.random.randint(1, 4)]
        if is_expected:
            self.step(leader, FollowerFetched(node, EPOCHS[node], offset, 0))
            follower.log += records
            high_watermark = leader.state.high_watermark
            self.step(follower, RecordsReplicated(LeaderEpoch(epoch), len(follower.log), 0, high_watermark, 0))

    def settle(self) -> None:
        """Let the source stand still until all replicas are equal to it."""
        self.source += [self.source_epoch]
        for _ in range(400):
            self.fetch_from_source()
            self.send_fetch()
            self.deliver_fetch()
        for replica in self.replicas.values():
            assert replica.log == self.source, replica
        assert self.replicas[self.leader].state.high_watermark == len(self.source)


@given(st.integers(0, 2**32))
def test_replicas_of_a_mirror_commit_the_same_records_and_become_equal_to_the_source(seed: int) -> None:
    model = Model(seed)
    actions = (
        model.change_source,
        model.fetch_from_source,
        model.fetch_from_source,
        model.send_fetch,
        model.send_fetch,
        model.deliver_fetch,
        model.deliver_fetch,
        lambda: model.elect(model.random.choice(NODES)),
    )
    for _ in range(60):
        model.random.choice(actions)()
    model.settle()
