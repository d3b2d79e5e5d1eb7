"""Changes of the voters, one at a time (thesis chapter 4, KIP-853).

- A set of voters is in force from its place in the log, committed or not. Two consecutive sets differ by at most one
  voter, so their majorities overlap (thesis 4.1).
- A leader begins a change only when the previous one is committed, and when it has committed an entry of its own term.
  Without the latter, changes of two leaders that know nothing of each other can leave majorities that do not overlap
  (the erratum of 2015 to thesis 4.1).
- A new voter catches up first, as an observer: see :class:`.VoterCatchUp` (thesis 4.2.1).
- A leader that is removed leads until its removal is committed, without counting itself; then it asks the most
  up-to-date voter to take over, and follows (thesis 4.2.2).
- The leader adds directory ids that the set lacks when it learns them, in a separate change. The ids of the voters do
  not change, so the majorities do not either.
- A voter has an address for each of its listeners, by name. A replica calls the others at the listener with the name
  of its own first one, so replicas whose first listeners differ need both names on every voter.
- The leader replaces the addresses of a voter that announces other ones, with the voter's directory id (KIP-853's
  UpdateRaftVoter). A voter that has become unreachable announces its addresses when it asks for the log. This requires
  a leader, and so a majority of the other voters. An operator may change the addresses instead, unless the voter is in
  contact and announces other ones.
- The leader adds no addresses, and accepts none, without the listener at which it calls others itself. A voter that
  closes a listener too early thus stays in the set as it was.
- An address without a listener's name serves for every name. The leader replaces it when the voter announces its own.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import VoterChangeAccepted
from tidelog_quorum.raft.core.events import AddVoterRequested, RemoveVoterRequested, UpdateVoterRequested
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import TimeoutNow
from tidelog_quorum.raft.core.progress import VoterCatchUp
from tidelog_quorum.raft.core.replica import Refusal, Replica
from tidelog_quorum.raft.core.voters import Voter, VoterSet


def on_add_requested(replica: Replica, leader: Leadership, event: AddVoterRequested) -> Refusal | None:
    """Wait until a replica has caught up, then give it a vote. Return the reason if that is not possible."""
    refusal = _refusal_of_change(replica, leader) or _refusal_of_voter(replica, leader, event.voter)
    if refusal is not None:
        return refusal
    directory_id = event.voter.directory_id or leader.progress[event.voter.voter_id].directory_id
    leader.catch_up = VoterCatchUp(
        event.request_id,
        replace(event.voter, directory_id=directory_id),
        replica.now_ms + event.timeout_ms,
        replica.log.last_index,
        replica.now_ms,
    )
    return None


def on_remove_requested(replica: Replica, leader: Leadership, event: RemoveVoterRequested) -> Refusal | None:
    """Remove a vote at once. Return the reason if that is not possible."""
    refusal = _refusal_of_change(replica, leader) or _refusal_of_removal(replica, event)
    if refusal is None:
        _change(replica, leader, event.request_id, replica.voters.current.without(event.voter_id))
    return refusal


def on_update_requested(replica: Replica, leader: Leadership, event: UpdateVoterRequested) -> Refusal | None:
    """Replace the addresses of a voter, with the checks and errors of Kafka's UpdateVoterHandler (KIP-853).

    Return the reason if that is not possible. A change to the current addresses is confirmed like a read, so that a
    replaced leader does not confirm it.
    """
    refusal = _refusal_of_epoch(replica, event.leader_epoch) or _refusal_of_update(replica, leader, event.voter)
    if refusal is not None:
        return refusal
    voters, new = replica.voters.current, event.voter
    known = voters.get(new.voter_id)
    assert known is not None, (new, voters)
    if known.endpoints.agrees_with(new.endpoints):
        leader.reads.add(event.request_id, replica.commit_index)
    else:
        _change(replica, leader, event.request_id, voters.with_voter(replace(known, endpoints=new.endpoints)))
    return None


def advance(replica: Replica, leader: Leadership) -> None:
    """Perform due actions: grant the vote or time out, add directory ids, update addresses, hand over."""
    if leader.catch_up is not None:
        _advance_catch_up(replica, leader, leader.catch_up)
    if leader.lacks_directories and _refusal_of_change(replica, leader) is None:
        _fill_in_directories(replica, leader)
    if leader.moved and _refusal_of_change(replica, leader) is None:
        _update_addresses(replica, leader)
    if not replica.has_vote and replica.voters_are_settled and replica.commit_index >= leader.start_index:
        _hand_over(replica, leader)


def _refusal_of_change(replica: Replica, leader: Leadership) -> Refusal | None:
    if replica.commit_index < leader.start_index:
        return ErrorCode.INVALID_REQUEST, "it has not committed an entry of its own term yet"
    if not replica.voters_are_settled:
        return ErrorCode.INVALID_REQUEST, f"the voter change at offset {replica.voters.index} is not committed yet"
    if leader.catch_up is not None:
        return ErrorCode.INVALID_REQUEST, f"it is adding voter {leader.catch_up.voter.voter_id}"
    if replica.transfer is not None:
        return ErrorCode.INVALID_REQUEST, f"it is transferring the leadership to voter {replica.transfer.target}"
    return None


def _refusal_of_voter(replica: Replica, leader: Leadership, voter: Voter) -> Refusal | None:
    if voter.voter_id in replica.voters.current or voter.voter_id == replica.node_id:
        return ErrorCode.DUPLICATE_VOTER, f"replica {voter.voter_id} is already a voter"
    progress = leader.progress.get(voter.voter_id)
    if progress is None:
        return ErrorCode.VOTER_NOT_FOUND, f"replica {voter.voter_id} does not follow the log"
    if voter.directory_id and progress.directory_id and voter.directory_id != progress.directory_id:
        known, wanted = progress.directory_id.hex(), voter.directory_id.hex()
        return ErrorCode.INVALID_VOTER_KEY, f"replica {voter.voter_id} has directory id {known}, not {wanted}"
    return _refusal_of_endpoints(replica, leader, voter)


def _refusal_of_removal(replica: Replica, event: RemoveVoterRequested) -> Refusal | None:
    voters = replica.voters.current
    voter = voters.get(event.voter_id)
    if voter is None:
        return ErrorCode.VOTER_NOT_FOUND, f"replica {event.voter_id} is not among the voters {list(voters.ids)}"
    if not voters.is_voter(event.voter_id, event.directory_id):
        known, wanted = voter.directory_id.hex(), event.directory_id.hex()
        return ErrorCode.INVALID_VOTER_KEY, f"voter {event.voter_id} has directory id {known}, not {wanted}"
    if len(voters) == 1:
        return ErrorCode.INVALID_REQUEST, f"voter {event.voter_id} is the only voter and cannot be removed"
    return None


def _refusal_of_epoch(replica: Replica, leader_epoch: int | None) -> Refusal | None:
    if leader_epoch is None or leader_epoch == replica.term:
        return None
    code = ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < replica.term else ErrorCode.UNKNOWN_LEADER_EPOCH
    return code, f"the request names leader epoch {leader_epoch}, the current one is {replica.term}"


def _refusal_of_update(replica: Replica, leader: Leadership, new: Voter) -> Refusal | None:
    pending = _refusal_of_change(replica, leader)
    if pending is not None:
        return ErrorCode.REQUEST_TIMED_OUT, pending[1]
    voters = replica.voters.current
    if new.voter_id not in voters or not voters.is_voter(new.voter_id, new.directory_id):
        directory = f" with directory id {new.directory_id.hex()}" if new.directory_id else ""
        return (
            ErrorCode.VOTER_NOT_FOUND,
            f"replica {new.voter_id}{directory} is not among the voters {list(voters.ids)}",
        )
    announced = leader.announced_endpoints(new.voter_id, replica.now_ms)
    if announced is not None and not announced.agrees_with(new.endpoints):
        text = f"voter {new.voter_id} is running and announces the address {announced}, not {new.endpoints}"
        return ErrorCode.INVALID_REQUEST, text
    return _refusal_of_endpoints(replica, leader, new)


def _refusal_of_endpoints(replica: Replica, leader: Leadership, voter: Voter) -> Refusal | None:
    if leader.reaches(voter.endpoints):
        return None
    text = f"replica {voter.voter_id} has no address of listener {replica.listener}, only {voter.endpoints}"
    return ErrorCode.INVALID_REQUEST, text


def _change(replica: Replica, leader: Leadership, request_id: int, voters: VoterSet) -> None:
    index = replica.append_voters(leader, voters)
    replica.outbox.append(VoterChangeAccepted(request_id, index, replica.term))


def _advance_catch_up(replica: Replica, leader: Leadership, catch_up: VoterCatchUp) -> None:
    voter = catch_up.voter
    progress = leader.progress.get(voter.voter_id)
    if replica.now_ms >= catch_up.deadline_ms or progress is None:
        leader.catch_up = None
        at = 0 if progress is None else progress.match_index
        reason = f"replica {voter.voter_id} did not catch up in time: it is at offset {at} of {replica.log.last_index}"
        replica.refuse(catch_up.request_id, ErrorCode.REQUEST_TIMED_OUT, reason)
    elif (
        replica.transfer is None
        and progress.directory_id == voter.directory_id
        and catch_up.is_caught_up(
            progress.match_index, replica.log.last_index, replica.now_ms, replica.config.election_timeout_ms
        )
    ):
        leader.catch_up = None
        _change(replica, leader, catch_up.request_id, replica.voters.current.with_voter(voter))


def _fill_in_directories(replica: Replica, leader: Leadership) -> None:
    voters = replica.voters.current
    filled = VoterSet(
        voter if voter.directory_id else replace(voter, directory_id=leader.directory_of(voter.voter_id))
        for voter in voters
    )
    if filled != voters:
        replica.append_voters(leader, filled)


def _update_addresses(replica: Replica, leader: Leadership) -> None:
    voters = replica.voters.current
    for voter_id, endpoints in leader.moved.items():
        voter = voters.get(voter_id)
        assert voter is not None, (voter_id, voters)
        voters = voters.with_voter(replace(voter, endpoints=endpoints))
    replica.append_voters(leader, voters)


def _hand_over(replica: Replica, leader: Leadership) -> None:
    successor = leader.best_successor(replica.now_ms)
    if successor is not None:
        replica.reply(successor, TimeoutNow(replica.node_id, replica.term))
    replica.follow(None)
