"""One test per rule of telling a voter's log from another one under its id (KIP-853)."""

from __future__ import annotations

from raft_voter import (
    KNOWN,
    ONE,
    THREE,
    TWO,
    TestedVoter,
    append,
    data,
    leading,
    voter,
    voters_entry,
)

from tidelog_quorum.raft.core import (
    AppendResponse,
    EntryKind,
    Follower,
    FollowRequest,
    Persist,
    Proposed,
    Tick,
    VoteRequest,
    VoteResponse,
    VotersChanged,
    VoterSet,
)


def test_voter_that_began_anew_is_neither_counted_nor_followed() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.sync()
    tested.ack(3, 2, directory_id=b"another")
    assert tested.raft.commit_index == 1
    tested.receive(FollowRequest(3, 0, 0, 0), b"another")
    assert tested.leadership.progress[3].directory_id == THREE
    tested.receive(AppendResponse(3, 9, False, 0, 0, 0, 0), b"another")
    assert tested.raft.term == 1
    tested.ack(3, 2, directory_id=THREE)
    assert tested.raft.commit_index == 2


def test_vote_of_a_voter_that_began_anew_does_not_count() -> None:
    tested = TestedVoter(voters=KNOWN, directory_id=ONE)
    tested.wait(100)
    tested.receive(VoteResponse(2, 0, pre_vote=True, granted=True), b"another")
    assert tested.raft.term == 0
    tested.receive(VoteResponse(2, 0, pre_vote=True, granted=True), TWO)
    assert tested.raft.term == 1


def test_voter_that_began_anew_gets_no_vote() -> None:
    tested = TestedVoter(voters=KNOWN, directory_id=ONE)
    for pre_vote in (True, False):
        tested.receive(VoteRequest(2, 5, pre_vote, 9, 5), b"another")
        assert tested.commands == []
    assert tested.raft.term == 0


def test_voter_that_has_joined_anew_gets_a_vote_of_one_that_missed_it() -> None:
    tested = TestedVoter(directory_id=ONE)
    tested.receive_and_sync(append(3, 1, (0, 0), (voters_entry(1, 1, KNOWN), data(2, 1)), commit=1))
    tested.now_ms += 1000
    tested.receive(VoteRequest(2, 5, False, 1, 1), b"another")
    assert tested.commands == [], "its log may not have the set that names the old directory"
    tested.receive_and_sync(VoteRequest(2, 5, False, 7, 4), b"another")
    assert tested.answer() == VoteResponse(1, 5, False, True)


def test_leader_with_another_directory_is_followed() -> None:
    tested = TestedVoter(voters=KNOWN, directory_id=ONE)
    tested.receive(append(2, 5, (0, 0), (data(1, 5),)), b"another")
    assert (tested.raft.leader_id, tested.raft.log.last_index) == (2, 1)


def test_replica_that_began_anew_knows_that_it_has_no_vote() -> None:
    tested = TestedVoter(voters=KNOWN, directory_id=b"another")
    tested.wait(100)
    assert tested.raft.role == Follower(None)
    assert [to for to, _ in tested.sent(FollowRequest)] == [2, 3]


def test_leader_fills_in_directory_ids_as_it_hears_them_one_entry_at_a_time() -> None:
    tested = TestedVoter(directory_id=ONE)
    tested.become_leader()
    tested.sync()
    tested.ack(2, 1, directory_id=TWO)
    filled = VoterSet([voter(1, ONE), voter(2, TWO), voter(3)])
    assert tested.of(VotersChanged) == [VotersChanged(filled, 2)]
    tested.ack(3, 1, directory_id=THREE)
    assert tested.of(VotersChanged) == [], "the change before is not committed"
    tested.sync()
    tested.ack(2, 2, directory_id=TWO)
    assert tested.of(VotersChanged) == [VotersChanged(KNOWN, 3)]
    assert tested.of(Persist)[0].entries[0].kind is EntryKind.VOTERS
    tested.sync()
    tested.ack(2, 3, directory_id=TWO)
    assert tested.raft.log.last_index == 3


def test_leader_goes_by_the_first_directory_id_that_a_voter_says() -> None:
    tested = leading(directory_id=b"")
    tested.ack(3, 0, directory_id=THREE)
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.sync()
    tested.ack(3, 5, directory_id=b"another")
    assert tested.leadership.progress[3].match_index == 0
