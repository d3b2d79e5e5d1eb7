"""One test per rule of snapshots and compaction (paper 7, figure 13), and of how a snapshot travels."""

from __future__ import annotations

import pytest
from raft_voter import CONFIG, TestedVoter, append, data, snapshot_at, voter_set, voters_entry

from tidelog_quorum.raft.core.commands import (
    Commit,
    CompactLog,
    InstallSnapshot,
    LeaderChanged,
    Persist,
    RestoreSnapshot,
    SendSnapshot,
    StoreChunk,
    VotersChanged,
)
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.events import Persisted, Proposed, SnapshotDamaged, SnapshotTaken, Tick
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteResponse,
)
from tidelog_quorum.raft.core.progress import Replicating, SendingSnapshot

AT_9 = snapshot_at(9, 2)


def chunk(snapshot: Snapshot, position: int, size: int, sender: int = 2, term: int = 3) -> SnapshotRequest:
    return SnapshotRequest(sender, term, snapshot, position, b"c" * size)


def answer(snapshot: Snapshot, position: int, *, done: bool = False, sender: int = 1, term: int = 3) -> Message:
    return SnapshotResponse(sender, term, snapshot.last_index, snapshot.last_term, position, done)


def receiving(snapshot: Snapshot = AT_9, terms: tuple[int, ...] = (1, 1)) -> TestedVoter:
    """A voter that has all chunks of a snapshot; the write that installs it is under way."""
    voter = TestedVoter(terms=terms, term=3)
    voter.receive(chunk(snapshot, 0, 4))
    voter.receive(chunk(snapshot, 4, 2))
    return voter


# Compaction.


def test_snapshot_taken_drops_the_log_before_it() -> None:
    voter = TestedVoter(terms=[1, 1, 2], term=2)
    voter.receive(append(2, 2, (3, 2), commit=2))
    snapshot = snapshot_at(2, 1)
    voter.step(SnapshotTaken(snapshot))
    assert voter.of(CompactLog) == [CompactLog(1, snapshot, 3)]
    assert (voter.raft.log.first_index, voter.raft.log.start_term, voter.raft.log.last_index) == (3, 1, 3)
    assert voter.raft.snapshot == snapshot


def test_compaction_leaves_entries_for_replicas_that_are_a_little_behind() -> None:
    voter = TestedVoter(terms=[1] * 10, term=1, config=RaftConfig(1000, 100, max_trailing_entries=3))
    voter.receive(append(2, 1, (10, 1), commit=8))
    voter.step(SnapshotTaken(snapshot_at(2, 1)))
    assert voter.of(CompactLog) == [CompactLog(1, snapshot_at(2, 1), 1)]
    voter.step(SnapshotTaken(snapshot_at(8, 1)))
    assert voter.of(CompactLog) == [CompactLog(2, snapshot_at(8, 1), 6)]
    assert voter.raft.log.slice(6, 9) == tuple(data(i, 1) for i in (6, 7, 8))


def test_compaction_bounds_the_bytes_that_it_leaves() -> None:
    config = RaftConfig(1000, 100, max_trailing_entries=5, max_trailing_bytes=7)
    entries = tuple(data(i, 1, b"abc") for i in range(1, 11))
    voter = TestedVoter(term=1, entries=entries, config=config)
    voter.receive(append(2, 1, (10, 1), commit=8))
    voter.step(SnapshotTaken(snapshot_at(8, 1)))
    assert voter.of(CompactLog) == [CompactLog(1, snapshot_at(8, 1), 7)]


def test_snapshot_taken_is_ignored_when_it_is_no_newer_than_the_present_one() -> None:
    voter = TestedVoter(terms=[1, 1], term=1, snapshot=snapshot_at(5, 1))
    voter.receive(append(2, 1, (7, 1), commit=6))
    for index in (4, 5):
        voter.step(SnapshotTaken(snapshot_at(index, 1)))
        assert voter.commands == []
    assert voter.raft.snapshot == snapshot_at(5, 1)


def test_compaction_and_appends_share_one_order_of_writes() -> None:
    voter = TestedVoter(terms=[1, 1], term=1)
    voter.receive(append(2, 1, (2, 1), (data(3, 1),), commit=2))
    voter.step(SnapshotTaken(snapshot_at(2, 1)))
    voter.receive(append(2, 1, (3, 1), (data(4, 1),), commit=2))
    assert [write.sequence for write in voter.of(Persist)] == [3]
    voter.step(Persisted(2))
    assert voter.raft.durability.last_index == 3
    voter.step(Persisted(3))
    assert voter.raft.durability.last_index == 4


def test_snapshot_must_carry_the_voters_in_force_at_its_end() -> None:
    changed = voter_set(1, 2, 3, 4)
    voter = TestedVoter(term=1)
    voter.receive_and_sync(append(2, 1, (0, 0), (data(1, 1), voters_entry(2, 1, changed), data(3, 1)), commit=3))
    assert voter.raft.voters.at(1) == voter_set(1, 2, 3)
    assert voter.raft.voters.at(2) == changed
    with pytest.raises(AssertionError):
        voter.raft.step(SnapshotTaken(snapshot_at(3, 1)), 0)
    voter.step(SnapshotTaken(snapshot_at(3, 1, changed)))
    assert voter.raft.snapshot == snapshot_at(3, 1, changed)


# A start from a snapshot.


def test_start_restores_the_snapshot_first_and_goes_on_behind_it() -> None:
    changed = voter_set(1, 2, 4)
    snapshot = snapshot_at(9, 2, changed)
    voter = TestedVoter(terms=[2, 3], term=3, snapshot=snapshot)
    assert voter.first_commands == [RestoreSnapshot(snapshot), VotersChanged(changed, 9)]
    assert (voter.raft.applied_index, voter.raft.commit_index, voter.raft.log.first_index) == (9, 9, 10)
    voter.receive(append(2, 3, (11, 3), commit=10))
    assert voter.of(Commit) == [Commit((data(10, 2),))]


def test_start_keeps_entries_before_the_end_of_the_snapshot() -> None:
    entries = tuple(data(i, 2) for i in range(6, 12))
    voter = TestedVoter(term=2, snapshot=AT_9, entries=entries, log_start=(5, 1))
    assert (voter.raft.log.first_index, voter.raft.log.term_at(5), voter.raft.log.last_index) == (6, 1, 11)
    voter.become_leader()
    voter.receive(AppendResponse(2, 3, False, 5, 1, 11, 0))
    [(_, request)] = voter.sent(AppendRequest)
    assert (request.prev_index, request.prev_term, request.entries[0].index) == (5, 1, 6)


def test_start_does_not_take_back_the_snapshot_for_a_vote() -> None:
    voter = TestedVoter(term=2, snapshot=AT_9)
    assert (voter.raft.log.last_index, voter.raft.log.last_term) == (9, 2)


# Receiver, in the order of figure 13.


def test_snapshot_of_an_older_term_is_refused_with_the_own_term() -> None:
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 0, 4, term=2))
    assert voter.answer() == answer(AT_9, 0)
    assert voter.of(StoreChunk) == []
    assert voter.raft.leader_id is None


def test_snapshot_begins_with_position_0_and_goes_on_in_order() -> None:
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 4, 2))
    assert (voter.of(StoreChunk), voter.answer()) == ([], answer(AT_9, 0))
    voter.receive(chunk(AT_9, 0, 4))
    assert voter.of(StoreChunk) == [StoreChunk(AT_9, 0, b"cccc")]
    assert voter.answer() == answer(AT_9, 4)
    voter.receive(chunk(AT_9, 0, 4))
    assert (voter.of(StoreChunk), voter.answer()) == ([], answer(AT_9, 4))


@pytest.mark.parametrize("size", [0, 7])
def test_snapshot_chunk_is_dropped_when_it_is_empty_or_too_long(size: int) -> None:
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 0, size))
    assert (voter.of(StoreChunk), voter.answer()) == ([], answer(AT_9, 0))


def test_snapshot_is_a_sign_of_life_of_the_leader() -> None:
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 0, 4))
    assert voter.of(LeaderChanged) == [LeaderChanged(2, 3)]
    voter.wait(999)
    voter.receive(chunk(AT_9, 4, 1))
    voter.wait(999)
    assert voter.raft.leader_id == 2


def test_snapshot_is_installed_with_its_last_chunk_and_changes_nothing_before_that_is_on_disk() -> None:
    voter = receiving(terms=(1, 1))
    assert voter.of(StoreChunk) == [StoreChunk(AT_9, 4, b"cc")]
    assert voter.of(InstallSnapshot) == [InstallSnapshot(1, AT_9)]
    assert voter.commands.index(voter.of(StoreChunk)[0]) < voter.commands.index(voter.of(InstallSnapshot)[0])
    assert (voter.raft.log.last_index, voter.raft.commit_index, voter.raft.snapshot) == (2, 0, None)


def test_snapshot_replaces_the_log_and_the_state_once_it_is_on_disk() -> None:
    changed = voter_set(1, 2, 4)
    snapshot = snapshot_at(9, 2, changed)
    voter = receiving(snapshot, terms=(1,) * 12)
    voter.sync()
    assert voter.of(RestoreSnapshot) == [RestoreSnapshot(snapshot)]
    assert voter.of(VotersChanged) == [VotersChanged(changed, 9)]
    assert voter.answer() == answer(snapshot, 6, done=True)
    raft = voter.raft
    assert (raft.log.first_index, raft.log.last_index, raft.log.start_term) == (10, 9, 2)
    assert (raft.applied_index, raft.commit_index, raft.durability.last_index) == (9, 9, 9)
    voter.receive_and_sync(append(2, 3, (9, 2), (data(10, 3),), commit=10))
    assert voter.of(Commit) == [Commit((data(10, 3),))]


def test_snapshot_is_needless_when_the_log_has_its_last_entry() -> None:
    voter = TestedVoter(terms=[1, 1, 2, 2], term=3)
    snapshot = snapshot_at(3, 2)
    voter.receive(chunk(snapshot, 0, 4))
    assert voter.of(StoreChunk) == []
    assert voter.answer() == answer(snapshot, 6, done=True)
    assert voter.of(Commit) == [Commit((data(1, 1), data(2, 1), data(3, 2)))]
    assert voter.raft.log.last_index == 4, "what follows stays"


def test_snapshot_is_needless_up_to_the_commit_index() -> None:
    voter = TestedVoter(term=3, snapshot=AT_9)
    voter.receive(chunk(snapshot_at(4, 1), 0, 4))
    assert voter.answer() == answer(snapshot_at(4, 1), 6, done=True)
    assert voter.of(StoreChunk) == []
    assert voter.raft.snapshot == AT_9


def test_snapshot_that_is_needless_is_answered_once_the_entries_are_on_disk() -> None:
    voter = TestedVoter(term=3)
    voter.receive(append(2, 3, (0, 0), (data(1, 1), data(2, 1))))
    voter.receive(chunk(snapshot_at(2, 1), 0, 4))
    assert voter.messages() == []
    voter.sync()
    assert voter.messages()[-1] == answer(snapshot_at(2, 1), 6, done=True)


def test_snapshot_that_is_damaged_is_asked_for_again_from_its_beginning() -> None:
    voter = receiving()
    voter.step(SnapshotDamaged(9, 2))
    assert voter.answer() == answer(AT_9, 0)
    assert (voter.raft.log.last_index, voter.raft.commit_index) == (2, 0)
    voter.receive(append(2, 3, (2, 1), commit=1))
    assert voter.answer() == AppendResponse(1, 3, True, 2, 0, 0, 0), "no acknowledgement waits for that write any more"
    voter.receive(chunk(AT_9, 0, 6))
    assert voter.of(InstallSnapshot) == [InstallSnapshot(2, AT_9)]
    voter.step(Persisted(2))
    assert voter.of(RestoreSnapshot) == [RestoreSnapshot(AT_9)]


def test_snapshot_damage_of_another_one_changes_nothing() -> None:
    voter = receiving()
    voter.step(SnapshotDamaged(8, 2))
    assert voter.commands == []
    voter.sync()
    assert voter.of(RestoreSnapshot) == [RestoreSnapshot(AT_9)]


def test_snapshot_transfer_goes_on_where_another_leader_ended() -> None:
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 0, 4))
    voter.receive_and_sync(chunk(AT_9, 0, 4, sender=3, term=4))
    assert voter.of(StoreChunk) == []
    assert voter.answer() == answer(AT_9, 4, term=4)


def test_snapshot_gives_way_to_a_newer_one_and_ignores_chunks_that_come_late() -> None:
    newer = snapshot_at(12, 2)
    voter = TestedVoter(term=3)
    voter.receive(chunk(AT_9, 0, 4))
    voter.receive(chunk(newer, 0, 2))
    assert voter.of(StoreChunk) == [StoreChunk(newer, 0, b"cc")]
    voter.receive(chunk(AT_9, 4, 2))
    assert voter.commands == []
    voter.receive_and_sync(chunk(AT_9, 0, 4, sender=3, term=4))
    assert voter.of(StoreChunk) == [StoreChunk(AT_9, 0, b"cccc")], "a new leader may have an older one"


def test_snapshot_is_forgotten_when_the_log_overtakes_it() -> None:
    voter = TestedVoter(terms=[1, 1], term=3)
    snapshot = snapshot_at(3, 1)
    voter.receive(chunk(snapshot, 0, 4))
    voter.receive(append(2, 3, (2, 1), (data(3, 1),), commit=3))
    voter.receive(chunk(snapshot, 4, 2))
    assert voter.of(StoreChunk) == []
    assert voter.of(InstallSnapshot) == []


def test_snapshot_being_received_is_forgotten_by_who_is_elected() -> None:
    voter = TestedVoter(terms=[1, 1], term=3)
    voter.receive(chunk(snapshot_at(3, 3), 0, 4))
    voter.receive(append(2, 3, (2, 1), (data(3, 3),)))
    voter.sync()
    voter.wait(1000)
    voter.lead_with_a_commit(2)
    assert voter.raft.commit_index == 4


def test_append_changes_nothing_while_a_snapshot_is_being_installed() -> None:
    voter = receiving(terms=(1, 1))
    voter.receive(append(2, 3, (2, 1), (data(3, 3),), commit=3))
    assert voter.answer() == AppendResponse(1, 3, True, 0, 0, 0, 0), "it lives, and has what was applied"
    assert (voter.raft.log.last_index, voter.raft.commit_index) == (2, 0)


def test_chunk_is_answered_with_the_end_while_the_snapshot_is_being_installed() -> None:
    voter = receiving()
    voter.receive(chunk(AT_9, 6, 0))
    assert voter.answer() == answer(AT_9, 6)
    voter.receive(chunk(snapshot_at(12, 2), 0, 4))
    assert voter.commands == [], "another one has to wait"


def test_replica_does_not_campaign_while_a_snapshot_is_being_installed() -> None:
    voter = receiving()
    voter.receive(TimeoutNow(2, 3))
    assert voter.commands == []
    for _ in range(3):
        voter.wait(1000)
        assert voter.messages() == []
    voter.sync()
    assert voter.of(RestoreSnapshot) == [RestoreSnapshot(AT_9)]
    voter.wait(1000)
    assert len(voter.messages()) == 2


def test_snapshot_taken_is_ignored_while_a_newer_one_is_being_installed() -> None:
    voter = TestedVoter(terms=[1, 1], term=3)
    voter.receive(append(2, 3, (2, 1), commit=2))
    voter.receive(chunk(AT_9, 0, 6))
    voter.step(SnapshotTaken(snapshot_at(2, 1)))
    assert voter.commands == []
    voter.sync()
    assert voter.raft.snapshot == AT_9


def test_commits_before_the_snapshot_are_handed_out_in_order_with_it() -> None:
    voter = TestedVoter(term=3)
    voter.receive(append(2, 3, (0, 0), (data(1, 1),), commit=1))
    voter.receive(chunk(AT_9, 0, 6))
    voter.step(Persisted(1))
    assert voter.of(Commit) == [Commit((data(1, 1),))]
    voter.sync()
    assert voter.of(Commit) == []
    assert voter.of(RestoreSnapshot) == [RestoreSnapshot(AT_9)]


# Leader.


def leading(config: RaftConfig = CONFIG) -> TestedVoter:
    """The leader of term 3 with a snapshot at index 9 and entries 10 and 11; replica 3 has them all."""
    voter = TestedVoter(terms=[2], term=2, snapshot=AT_9, config=config)
    voter.lead_with_a_commit(3)
    return voter


def refuse(voter: TestedVoter, sender: int = 2) -> None:
    """A follower says that its log ends at index 3."""
    prev_index = voter.leadership.progress[sender].next_index - 1
    voter.receive(AppendResponse(sender, 3, False, 3, 1, prev_index, 0))


def done(voter: TestedVoter, snapshot: Snapshot, sender: int = 2) -> None:
    voter.receive(answer(snapshot, snapshot.size, done=True, sender=sender))


def test_leader_sends_the_snapshot_to_who_needs_what_the_log_has_no_more() -> None:
    voter = leading()
    refuse(voter)
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 0)]
    assert voter.messages() == []


def test_leader_sends_one_chunk_at_a_time_from_the_wanted_position() -> None:
    voter = leading()
    refuse(voter)
    voter.step(Proposed(b"x", 3))
    voter.step(Tick())
    assert [to for to, _ in voter.sent(AppendRequest)] == [3], "no entries beside a snapshot"
    voter.receive(answer(AT_9, 4, sender=2))
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 4)]
    voter.receive(answer(AT_9, 4, sender=2))
    assert voter.of(SendSnapshot) == [], "a doubled answer asks for nothing new"
    voter.receive(answer(AT_9, 0, sender=2))
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 0)], "the receiver has begun anew"


def test_leader_has_nothing_to_send_behind_the_last_chunk_but_asks_now_and_then() -> None:
    voter = leading()
    refuse(voter)
    voter.receive(answer(AT_9, 6, sender=2))
    assert voter.of(SendSnapshot) == []
    voter.wait(100)
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 6)]


def test_leader_does_not_give_up_a_snapshot_that_takes_long_to_install() -> None:
    voter = leading()
    refuse(voter)
    voter.receive(answer(AT_9, 6, sender=2))
    voter.step(SnapshotTaken(snapshot_at(11, 3)))
    for _ in range(30):
        voter.now_ms += 100
        voter.ack(3, 11)
        if voter.of(SendSnapshot):
            assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 6)]
            voter.receive(answer(AT_9, 6, sender=2))
    done(voter, AT_9)
    assert voter.leadership.progress[2].match_index == 9


def test_leader_sends_a_chunk_again_that_is_not_answered() -> None:
    voter = leading()
    refuse(voter)
    voter.receive(answer(AT_9, 4, sender=2))
    sent = []
    for tick in range(1, 9):
        voter.now_ms += 99
        voter.ack(3, 11)
        voter.wait(1)
        sent += [(tick, command.position) for command in voter.of(SendSnapshot)]
    assert sent == [(1, 4), (3, 4), (7, 4)], "with longer and longer breaks"


def test_leader_goes_on_with_the_log_once_the_snapshot_is_installed() -> None:
    voter = leading()
    refuse(voter)
    done(voter, AT_9)
    [(to, request)] = voter.sent(AppendRequest)
    assert (to, request.prev_index, request.prev_term, request.entries[0].index) == (2, 9, 2, 10)
    assert voter.leadership.progress[2].match_index == 9


def test_leader_learns_by_a_heartbeat_that_the_snapshot_is_installed() -> None:
    voter = leading()
    refuse(voter)
    voter.wait(100)
    [heartbeat] = [m for to, m in voter.sent(AppendRequest) if to == 2]
    assert (heartbeat.prev_index, heartbeat.prev_term, heartbeat.entries) == (9, 2, ())
    voter.receive(AppendResponse(2, 3, False, 3, 1, 9, 0))
    assert isinstance(voter.leadership.progress[2].state, SendingSnapshot)
    voter.ack(2, 9)
    assert [m.entries[0].index for _, m in voter.sent(AppendRequest)] == [10]
    assert isinstance(voter.leadership.progress[2].state, Replicating)


def test_leader_stays_in_office_by_answers_to_a_snapshot() -> None:
    voter = leading()
    refuse(voter)
    for position in range(1, 6):
        voter.now_ms += 900
        voter.receive(answer(AT_9, position, sender=2))
        voter.wait(0)
    assert voter.leadership.progress[2].contact_ms == voter.now_ms


def test_leader_does_not_count_an_answer_about_an_older_snapshot() -> None:
    voter = leading()
    refuse(voter)
    voter.receive(answer(snapshot_at(5, 1), 4, sender=2))
    assert voter.of(SendSnapshot) == []
    done(voter, snapshot_at(5, 1))
    assert voter.leadership.progress[2].match_index == 0
    assert isinstance(voter.leadership.progress[2].state, SendingSnapshot)


def test_leader_goes_on_with_an_older_snapshot_that_gets_through_and_keeps_what_follows_it() -> None:
    voter = leading()
    refuse(voter)
    newer = snapshot_at(11, 3)
    voter.step(SnapshotTaken(newer))
    assert voter.of(CompactLog) == [CompactLog(3, newer, 10)], "else the follower would need the next one at once"
    voter.receive(answer(AT_9, 4, sender=2))
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, AT_9, 4)]
    done(voter, AT_9)
    assert [m.entries[0].index for _, m in voter.sent(AppendRequest)] == [10]


def test_leader_goes_over_to_the_latest_snapshot_when_the_older_one_gets_stuck() -> None:
    voter = leading()
    refuse(voter)
    newer = snapshot_at(11, 3)
    voter.step(SnapshotTaken(newer))
    voter.now_ms += 999
    voter.ack(3, 11)
    assert [command.snapshot for command in voter.of(SendSnapshot)] == [AT_9]
    voter.now_ms += 1
    voter.ack(3, 11)
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, newer, 0)]
    done(voter, AT_9)
    assert voter.leadership.progress[2].match_index == 0


def test_compaction_does_not_wait_for_a_replica_that_is_gone() -> None:
    voter = leading()
    refuse(voter)
    voter.now_ms += 999
    voter.ack(3, 11)
    voter.wait(1)
    newer = snapshot_at(11, 3)
    voter.step(SnapshotTaken(newer))
    assert voter.of(CompactLog) == [CompactLog(3, newer, 12)]


def test_leader_sends_the_next_snapshot_to_who_is_overtaken_by_compaction() -> None:
    voter = leading()
    voter.step(SnapshotTaken(snapshot_at(11, 3)))
    assert voter.of(SendSnapshot) == [SendSnapshot(2, 3, snapshot_at(11, 3), 0)]


def test_leader_that_resigns_sends_no_more_of_a_snapshot() -> None:
    voter = leading()
    refuse(voter)
    voter.receive(append(3, 4, (11, 3)))
    voter.receive(answer(AT_9, 4, sender=2))
    assert voter.of(SendSnapshot) == []


def test_votes_compare_with_the_end_of_the_snapshot() -> None:
    voter = TestedVoter(term=2, snapshot=AT_9)
    voter.become_candidate()
    voter.receive(VoteResponse(2, 3, pre_vote=False, granted=True))
    [request] = [m for to, m in voter.sent(AppendRequest) if to == 2]
    assert (request.prev_index, request.prev_term) == (9, 2)
