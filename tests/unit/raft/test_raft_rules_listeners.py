"""One test per rule of the addresses of a voter's listeners (KIP-853)."""

from __future__ import annotations

import pytest
from raft_voter import ONE, THREE, TWO, TestedVoter

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.raft.core.commands import ReadReady, RequestRefused, VotersChanged
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.events import AddVoterRequested, UpdateVoterRequested
from tidelog_quorum.raft.core.messages import AppendResponse, FollowRequest
from tidelog_quorum.raft.core.voters import Voter, VoterSet

OPEN, TLS = "OPEN", "TLS"


def listening(voter_id: int, *names: str) -> Endpoints:
    """Return the addresses of a controller with these listeners."""
    return Endpoints(ControllerEndpoint(f"host{voter_id}", 9093 + len(name), name) for name in names)


def voters_with(*names: str, **others: tuple[str, ...]) -> VoterSet:
    ids = {1: ONE, 2: TWO, 3: THREE}
    return VoterSet(Voter(i, listening(i, *others.get(f"voter{i}", names)), ids[i]) for i in ids)


def leading(voters: VoterSet, listener: str = OPEN) -> TestedVoter:
    known = voters.get(1)
    assert known is not None
    tested = TestedVoter(voters=voters, directory_id=ONE, endpoints=known.endpoints, listener=listener)
    tested.lead_with_a_commit(2)
    return tested


def announce(tested: TestedVoter, endpoints: Endpoints) -> list[VotersChanged]:
    """Let voter 3 announce its addresses; return the new sets of voters."""
    tested.receive(AppendResponse(3, 1, True, 1, 0, 0, 0), THREE, endpoints)
    return tested.of(VotersChanged)


def test_leader_records_a_listener_that_a_voter_adds_or_closes() -> None:
    tested = leading(voters_with(OPEN))
    [added] = announce(tested, listening(3, OPEN, TLS))
    assert added.voters == voters_with(OPEN, voter3=(OPEN, TLS))
    tested.sync()
    tested.ack(2, 2, directory_id=TWO)
    [closed] = announce(tested, listening(3, OPEN))
    assert closed.voters == voters_with(OPEN)


def test_leader_records_its_own_listeners() -> None:
    voters = voters_with(OPEN)
    tested = TestedVoter(voters=voters, directory_id=ONE, endpoints=listening(1, OPEN, TLS), listener=OPEN)
    tested.become_leader()
    tested.sync()
    tested.ack(2, 1, directory_id=TWO)
    assert tested.raft.voters.current == voters_with(OPEN, voter1=(OPEN, TLS))


def test_leader_ignores_the_addresses_of_a_voter_that_it_could_not_call_any_more() -> None:
    tested = leading(voters_with(OPEN, TLS))
    assert announce(tested, listening(3, TLS)) == []
    assert tested.raft.voters.current == voters_with(OPEN, TLS)
    [closed] = announce(leading(voters_with(OPEN, TLS), TLS), listening(3, TLS))
    assert closed.voters == voters_with(OPEN, TLS, voter3=(TLS,))


def test_leader_names_the_address_of_a_voter_whose_listener_is_unknown() -> None:
    voters = voters_with(OPEN).with_voter(Voter.at(3, "host3", 1, THREE))
    assert voters.address(3, TLS) == voters.address(3, OPEN) == ("host3", 1)
    [named] = announce(leading(voters), listening(3, OPEN))
    assert named.voters == voters_with(OPEN)
    assert named.voters.address(3, TLS) is None


@pytest.mark.parametrize("request_of", [UpdateVoterRequested, AddVoterRequested])
def test_operator_cannot_give_a_voter_addresses_at_which_the_leader_does_not_call(request_of: type) -> None:
    tested = leading(voters_with(OPEN))
    if request_of is UpdateVoterRequested:
        tested.step(UpdateVoterRequested(9, Voter(3, listening(3, TLS), THREE)))
    else:
        tested.receive(FollowRequest(4, 0, 0, 0), b"directory-4")
        tested.step(AddVoterRequested(9, Voter(4, listening(4, TLS)), 5_000))
    [refused] = tested.of(RequestRefused)
    assert (refused.code, tested.raft.log.last_index) == (ErrorCode.INVALID_REQUEST, 1)
    assert "has no address of listener OPEN, only TLS://host" in refused.reason


def test_operator_that_names_one_of_the_addresses_of_a_voter_changes_nothing() -> None:
    tested = leading(voters_with(OPEN, TLS))
    announce(tested, listening(3, OPEN, TLS))
    tested.step(UpdateVoterRequested(9, Voter.at(3, "host3", 9093 + len(TLS), THREE)))
    tested.ack(2, 1, context=tested.leadership.reads.context, directory_id=TWO)
    assert tested.of(ReadReady) == [ReadReady(9, 1)]
    assert tested.raft.voters.current == voters_with(OPEN, TLS)


def test_operator_replaces_all_addresses_of_a_voter_that_is_away() -> None:
    tested = leading(voters_with(OPEN, TLS))
    tested.step(UpdateVoterRequested(9, Voter(3, listening(3, OPEN), THREE)))
    assert tested.raft.voters.current == voters_with(OPEN, TLS, voter3=(OPEN,))
