"""One test per rule of telling a voter's log from another one under its id (KIP-853)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_voter import (
    FOUR,
    KNOWN,
    ONE,
    THREE,
    TWO,
    TestedVoter,
    append,
    data,
    leading,
    remove,
    voter,
    voters_entry,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import Persist, ReadReady, RequestRefused, VoterChangeAccepted, VotersChanged
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.events import Proposed, Tick, UpdateVoterRequested
from tidelog_quorum.raft.core.messages import AppendResponse, EntryKind, FollowRequest, VoteRequest, VoteResponse
from tidelog_quorum.raft.core.replica import Follower
from tidelog_quorum.raft.core.voters import Voter, VoterSet


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


# Addresses (KIP-853's UpdateRaftVoter).

ELSEWHERE = Endpoints.at("elsewhere", 9)


def with_endpoints(voter_id: int, endpoints: Endpoints) -> VoterSet:
    known = KNOWN.get(voter_id)
    assert known is not None
    return KNOWN.with_voter(replace(known, endpoints=endpoints))


def test_leader_updates_the_address_of_a_voter_that_says_another_one() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, ELSEWHERE)
    assert tested.of(VotersChanged) == [VotersChanged(with_endpoints(3, ELSEWHERE), 2)]
    tested.sync()
    tested.receive(AppendResponse(3, 1, True, 2, 0, 0, 0), THREE, ELSEWHERE)
    assert (tested.raft.commit_index, tested.raft.log.last_index) == (2, 2), "it is right now, and counts as before"


def test_voter_that_cannot_be_reached_says_its_address_when_it_asks_for_the_log() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    contact_ms = tested.leadership.progress[3].contact_ms
    tested.now_ms += 10
    tested.receive(FollowRequest(3, 0, 0, 0), THREE, ELSEWHERE)
    assert tested.of(VotersChanged) == [VotersChanged(with_endpoints(3, ELSEWHERE), 2)]
    assert tested.leadership.progress[3].contact_ms == contact_ms, "it does not hear the leader yet"


def test_address_of_a_voter_is_only_what_its_own_log_says() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    for directory_id in (b"another", b""):
        tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), directory_id, ELSEWHERE)
        tested.receive(FollowRequest(3, 0, 0, 0), directory_id, ELSEWHERE)
    tested.receive(FollowRequest(4, 0, 0, 0), FOUR, ELSEWHERE)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, voter(3).endpoints)
    tested.receive(AppendResponse(2, 1, True, 1, 0, 0, 0), TWO)
    assert tested.raft.log.last_index == 1


def test_address_waits_for_the_change_before_and_the_latest_one_counts() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, ELSEWHERE)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, Endpoints.at("on its way", 1))
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, Endpoints.at("at last", 2))
    assert tested.raft.log.last_index == 2
    remove(tested, 3)
    assert [r.code for r in tested.of(RequestRefused)] == [ErrorCode.INVALID_REQUEST]
    tested.sync()
    tested.ack(2, 2, directory_id=TWO)
    assert tested.of(VotersChanged) == [VotersChanged(with_endpoints(3, Endpoints.at("at last", 2)), 3)]


def test_address_of_a_voter_that_is_removed_is_forgotten() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    remove(tested, 3)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, ELSEWHERE)
    tested.sync()
    tested.ack(2, 2, directory_id=TWO)
    assert (tested.raft.commit_index, tested.raft.log.last_index) == (2, 2)


def test_leader_that_has_moved_updates_its_own_address() -> None:
    alone = VoterSet([voter(1, ONE)])
    tested = TestedVoter(voters=alone, directory_id=ONE, endpoints=ELSEWHERE)
    for _ in range(4):
        tested.wait(100)
        tested.sync()
    assert tested.raft.voters.current == VoterSet([replace(voter(1, ONE), endpoints=ELSEWHERE)])
    assert tested.raft.commit_index == tested.raft.log.last_index == 2


# An operator's update of an address (KIP-853's UpdateVoterHandler).


def update(tested: TestedVoter, moved: Voter, leader_epoch: int | None = None) -> list[ErrorCode]:
    tested.step(UpdateVoterRequested(9, moved, leader_epoch))
    return [refused.code for refused in tested.of(RequestRefused)]


def test_operator_moves_a_voter_that_is_away_in_one_entry() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    assert update(tested, Voter(3, ELSEWHERE, THREE), leader_epoch=1) == []
    assert tested.of(VotersChanged) == [VotersChanged(with_endpoints(3, ELSEWHERE), 2)]
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(9, 2, 1)]
    assert update(tested, Voter(2, ELSEWHERE)) == [ErrorCode.REQUEST_TIMED_OUT], "the change before is not committed"
    tested.sync()
    tested.ack(2, 2, directory_id=TWO)
    assert (tested.raft.commit_index, tested.raft.log.last_index) == (2, 2)


def test_update_of_an_address_that_a_voter_has_changes_nothing_and_is_confirmed_by_a_majority() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    assert update(tested, Voter.at(3, "host3", 9093, THREE)) == []
    assert tested.of(ReadReady) == []
    tested.ack(2, 1, context=tested.leadership.reads.context, directory_id=TWO)
    assert tested.of(ReadReady) == [ReadReady(9, 1)]
    assert tested.raft.log.last_index == 1


@pytest.mark.parametrize(
    ("moved", "leader_epoch", "code"),
    [
        (Voter(3, ELSEWHERE, THREE), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (Voter(3, ELSEWHERE, THREE), 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (Voter(3, ELSEWHERE, b"another"), 1, ErrorCode.VOTER_NOT_FOUND),
        (Voter(4, ELSEWHERE, FOUR), 1, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_update_of_an_address_is_refused_with_kafkas_error(moved: Voter, leader_epoch: int, code: ErrorCode) -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    assert update(tested, moved, leader_epoch) == [code]
    assert tested.raft.log.last_index == 1


def test_update_of_an_address_needs_the_leader() -> None:
    assert update(TestedVoter(), Voter(3, ELSEWHERE)) == [ErrorCode.NOT_CONTROLLER]


def test_update_does_not_contradict_a_voter_that_runs_and_announces_its_address() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, voter(3).endpoints)
    assert update(tested, Voter(3, ELSEWHERE)) == [ErrorCode.INVALID_REQUEST]
    for _ in range(12):
        tested.now_ms += 100
        tested.ack(2, 1, directory_id=TWO)
    assert update(tested, Voter(3, ELSEWHERE)) == [], "it is away"
