"""One test per rule of linearizable reads (thesis 6.4)."""

from __future__ import annotations

from raft_voter import TestedVoter, append

from tidelog_quorum.raft.core.commands import Commit, ReadFailed, ReadReady
from tidelog_quorum.raft.core.events import ReadRequested
from tidelog_quorum.raft.core.messages import AppendRequest, AppendResponse


def test_read_waits_for_the_first_commit_of_the_term_and_for_a_majority_to_confirm() -> None:
    voter = TestedVoter(terms=[1], term=1)
    voter.become_leader()
    voter.step(ReadRequested(7))
    assert voter.of(ReadReady) == []
    voter.sync()
    voter.ack(2, 2)
    assert voter.of(ReadReady) == []
    contexts = [m.read_context for m in voter.messages() if isinstance(m, AppendRequest)]
    assert contexts
    assert set(contexts) == {1}
    voter.ack(2, 2, context=1)
    assert voter.of(ReadReady) == [ReadReady(7, 2)]


def test_read_waits_until_everything_up_to_its_index_was_handed_out() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.ack(3, 1)
    voter.step(ReadRequested(1))
    voter.ack(2, 1, context=1)
    assert voter.of(ReadReady) == []
    voter.sync()
    assert [type(command) for command in voter.commands] == [Commit, ReadReady]


def test_read_is_not_confirmed_by_an_answer_to_an_earlier_message() -> None:
    voter = TestedVoter()
    voter.become_leader()
    voter.sync()
    voter.ack(2, 1)
    voter.step(ReadRequested(1))
    voter.ack(2, 1, context=1)
    assert voter.of(ReadReady) == [ReadReady(1, 1)]
    voter.step(ReadRequested(2))
    voter.ack(3, 1, context=1)
    assert voter.of(ReadReady) == []


def test_read_fails_when_the_voter_does_not_lead_or_ceases_to() -> None:
    voter = TestedVoter()
    voter.step(ReadRequested(1))
    assert voter.commands == [ReadFailed(1)]
    voter.become_leader()
    voter.step(ReadRequested(2))
    voter.receive(append(2, 5))
    assert voter.of(ReadFailed) == [ReadFailed(2)]


def test_refusal_of_an_older_terms_append_confirms_no_read() -> None:
    follower = TestedVoter(terms=[1], term=2)
    follower.receive(AppendRequest(2, 1, 1, 1, 1, (), read_context=1))
    refusal = follower.answer()
    assert isinstance(refusal, AppendResponse)
    assert (refusal.success, refusal.read_context) == (False, 0)


def test_read_is_not_confirmed_by_an_answer_to_a_message_of_the_leaders_former_term() -> None:
    follower = TestedVoter(terms=[1], term=1, node_id=2)
    leader = TestedVoter(terms=[1], term=1)
    leader.become_leader()
    leader.sync()
    leader.ack(2, 2)
    follower.receive_and_sync(append(1, leader.raft.term, (1, 1)))
    follower.receive(AppendRequest(1, 1, 1, 1, 1, (), read_context=1))
    leader.receive(follower.answer())
    leader.step(ReadRequested(7))
    assert leader.of(ReadReady) == []
