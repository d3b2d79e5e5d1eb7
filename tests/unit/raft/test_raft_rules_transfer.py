"""One test per rule of leadership transfer (thesis 3.10)."""

from __future__ import annotations

import pytest
from raft_voter import TestedVoter, append, voter_set

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import Persist, ProposalAccepted, ProposalRejected, RequestRefused, TransferDone
from tidelog_quorum.raft.core.events import Proposed, Tick, TransferRequested
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import AppendRequest, HardState, TimeoutNow, VoteRequest, VoteResponse
from tidelog_quorum.raft.core.replica import Candidate, Follower


def leading(*followers: int) -> TestedVoter:
    """The leader of term 1, whose no-op at index 1 is committed on it and the followers (2 and 3 if none is given)."""
    tested = TestedVoter()
    tested.lead_with_a_commit(*followers)
    return tested


def transfer(tested: TestedVoter, to: int | None = 2, timeout_ms: int = 5000, request_id: int = 7) -> None:
    tested.step(TransferRequested(request_id, to, timeout_ms))


def refusal(tested: TestedVoter) -> tuple[int, ErrorCode]:
    [refused] = tested.of(RequestRefused)
    return refused.request_id, refused.code


def test_transfer_asks_a_target_with_all_of_the_log_at_once() -> None:
    tested = leading()
    transfer(tested)
    assert tested.sent(TimeoutNow) == [(2, TimeoutNow(1, 1))]
    assert isinstance(tested.raft.role, Leadership)


def test_transfer_waits_until_the_target_has_all_of_the_log() -> None:
    tested = leading()
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    transfer(tested)
    assert tested.sent(TimeoutNow) == []
    tested.ack(2, 1)
    assert tested.sent(TimeoutNow) == []
    tested.ack(2, 2)
    assert tested.sent(TimeoutNow) == [(2, TimeoutNow(1, 1))]


def test_transfer_stops_proposals() -> None:
    tested = leading()
    transfer(tested)
    tested.step(Proposed(b"x", 1))
    assert tested.commands == [ProposalRejected(1, 1)]


def test_transfer_goes_to_the_voter_with_most_of_the_log_of_those_heard_lately() -> None:
    tested = leading()
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.ack(3, 2)
    tested.now_ms += 1000
    tested.ack(2, 1)
    transfer(tested, None)
    tested.ack(2, 2)
    assert tested.sent(TimeoutNow) == [(2, TimeoutNow(1, 1))]
    other = leading()
    other.step(Proposed(b"x", 1))
    other.step(Tick())
    other.ack(3, 2)
    transfer(other, None)
    assert other.sent(TimeoutNow) == [(3, TimeoutNow(1, 1))]


def test_transfer_is_asked_for_again_with_every_heartbeat() -> None:
    tested = leading()
    transfer(tested)
    tested.wait(50)
    assert tested.sent(TimeoutNow) == []
    tested.wait(50)
    assert tested.sent(TimeoutNow) == [(2, TimeoutNow(1, 1))]


def test_transfer_is_done_when_the_other_leads() -> None:
    tested = leading()
    transfer(tested)
    tested.receive_and_sync(VoteRequest(2, 2, False, 1, 1, transfer=True))
    assert tested.answer() == VoteResponse(1, 2, False, True)
    assert (tested.raft.role, tested.of(TransferDone)) == (Follower(None), [])
    tested.receive(append(2, 2, (1, 1)))
    assert tested.of(TransferDone) == [TransferDone(7)]
    tested.wait(5000)
    assert tested.of(RequestRefused) == []


def test_transfer_ends_after_an_election_timeout_and_the_leader_goes_on() -> None:
    tested = leading(2)
    transfer(tested, 3)
    for _ in range(9):
        tested.now_ms += 100
        tested.ack(2, 1)
        assert tested.of(RequestRefused) == []
    tested.wait(99)
    assert tested.raft.next_deadline_ms == tested.now_ms + 1
    tested.wait(1)
    assert refusal(tested) == (7, ErrorCode.REQUEST_TIMED_OUT)
    tested.step(Proposed(b"x", 1))
    assert tested.commands == [ProposalAccepted(2, 1)]


def test_transfer_ends_after_the_operators_time() -> None:
    tested = leading(2)
    transfer(tested, 3, timeout_ms=70)
    assert tested.raft.next_deadline_ms == tested.now_ms + 70
    tested.wait(70)
    assert refusal(tested) == (7, ErrorCode.REQUEST_TIMED_OUT)


def test_transfer_of_a_leader_that_resigns_ends_in_time_as_well() -> None:
    tested = leading()
    transfer(tested)
    tested.receive(VoteRequest(3, 5, False, 1, 1, transfer=True))
    assert tested.raft.leader_id is None
    tested.wait(1000)
    assert refusal(tested) == (7, ErrorCode.REQUEST_TIMED_OUT)


def test_transfer_that_brings_no_leader_at_all_ends_in_time() -> None:
    tested = leading()
    tested.now_ms += 990
    tested.ack(2, 1)
    # It resigns by a check of its quorum just after the request, and its first timeout is as long as the transfer's.
    tested.now_ms += 500
    tested.ack(3, 1)
    transfer(tested, 3)
    tested.receive_and_sync(VoteRequest(2, 2, False, 0, 0, transfer=True))
    assert tested.raft.role == Follower(None)
    tested.now_ms += 999
    tested.step(Tick())
    assert tested.of(RequestRefused) == []
    tested.wait(1)
    assert refusal(tested) == (7, ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(("to", "code"), [(9, ErrorCode.VOTER_NOT_FOUND), (1, ErrorCode.INVALID_REQUEST)])
def test_transfer_to_no_other_voter_is_refused(to: int, code: ErrorCode) -> None:
    tested = leading()
    transfer(tested, to)
    assert refusal(tested) == (7, code)
    tested.step(Proposed(b"x", 1))
    assert tested.commands == [ProposalAccepted(2, 1)]


def test_transfer_is_refused_when_there_is_nobody_or_another_one_under_way_or_no_leader_here() -> None:
    alone = TestedVoter(voters=1)
    alone.sync()
    transfer(alone, None)
    assert refusal(alone) == (7, ErrorCode.INVALID_REQUEST)
    tested = leading()
    transfer(tested)
    transfer(tested, 3, request_id=8)
    assert refusal(tested) == (8, ErrorCode.INVALID_REQUEST)
    follower = TestedVoter()
    transfer(follower)
    assert refusal(follower) == (7, ErrorCode.NOT_CONTROLLER)


# The target and the others.


def test_target_campaigns_at_once_without_pre_vote() -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.receive(append(2, 1, (1, 1)))
    tested.receive(TimeoutNow(2, 1))
    assert tested.of(Persist) == [Persist(1, HardState(2, 1), None, ())]
    assert tested.messages() == []
    tested.sync()
    assert tested.messages() == [VoteRequest(1, 2, False, 1, 1, transfer=True)] * 2


def test_target_that_is_asked_twice_campaigns_once() -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.receive(append(2, 1, (1, 1)))
    for _ in range(2):
        tested.receive(TimeoutNow(2, 1))
    assert tested.raft.term == 2


@pytest.mark.parametrize("message", [TimeoutNow(3, 1), TimeoutNow(2, 0), TimeoutNow(3, 2)])
def test_target_listens_to_its_leader_alone(message: TimeoutNow) -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.receive(append(2, 1, (1, 1)))
    tested.receive(message)
    assert not isinstance(tested.raft.role, Candidate)


def test_target_without_a_vote_does_not_campaign() -> None:
    tested = TestedVoter(terms=[1], term=1, voters=voter_set(2, 3))
    tested.receive(append(2, 1, (1, 1)))
    tested.receive(TimeoutNow(2, 1))
    assert tested.raft.role == Follower(2)


def test_target_with_a_stale_log_gets_no_vote() -> None:
    tested = TestedVoter(terms=[1, 1], term=1)
    tested.receive(append(3, 1, (2, 1)))
    tested.receive_and_sync(VoteRequest(2, 2, False, 1, 1, transfer=True))
    assert tested.answer() == VoteResponse(1, 2, False, False)


def test_voters_answer_the_target_although_they_hear_the_leader() -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.receive(append(3, 1, (1, 1)))
    tested.receive(VoteRequest(2, 2, False, 1, 1))
    assert tested.commands == []
    tested.receive_and_sync(VoteRequest(2, 2, False, 1, 1, transfer=True))
    assert tested.answer() == VoteResponse(1, 2, False, True)


def test_target_that_wins_begins_its_term() -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.receive(append(2, 1, (1, 1)))
    tested.receive(TimeoutNow(2, 1))
    tested.sync()
    tested.receive(VoteResponse(2, 2, pre_vote=False, granted=True))
    assert isinstance(tested.raft.role, Leadership)
    assert [m.entries[0].term for _, m in tested.sent(AppendRequest)] == [2, 2]
