"""The handling of a leader's appends (figure 2, AppendEntries, receiver).

- An append of an older term is refused with the current term. The refusal confirms no reads: its receiver may lead
  again in the current term, in which it numbers its reads from the start.
- An append whose previous entry is not in the log is refused, with the latest place where the logs may agree.
  Everything up to the commit index agrees with every leader, so the place is never before that.
- Only conflicting entries, and all that follow them, are dropped, and never a committed one (paper 5.3). Entries that
  an append does not mention stay.
- The commit index rises no further than the append proves equal.
- An acknowledgement covers what the append proves equal, and leaves when that is on disk.
- A set of voters is in force from the moment its entry is in the log; if the entry is dropped, so is the set (thesis
  4.1).
- While a snapshot is being installed, appends change nothing. The answer repeats what was proven before, so the leader
  sees that this replica lives, and sends the entries again.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog_quorum.raft.core.messages import AppendRequest, AppendResponse, Entry
from tidelog_quorum.raft.core.replica import Replica, protocol_violation


def on_append_request(replica: Replica, request: AppendRequest) -> None:
    """Append a leader's entries, or refuse them with the place where the logs may agree."""
    if request.term < replica.term:
        _refuse(replica, replace(request, read_context=0), hint_index=0, hint_term=0)
        return
    follow_leader(replica, request.sender_id)
    if replica.is_installing:
        _acknowledge(replica, request, replica.applied_index)
        return
    log = replica.log
    if not _has_previous(replica, request):
        hint = max(replica.commit_index, log.latest_not_after(request.prev_index, request.prev_term))
        _refuse(replica, request, hint, log.term_at(hint))
        return
    _take_entries(replica, request.entries)
    last_index = request.prev_index + len(request.entries)
    replica.commit_index = max(replica.commit_index, min(request.commit_index, last_index))
    _acknowledge(replica, request, last_index)


def follow_leader(replica: Replica, leader_id: int) -> None:
    """Follow the sender of a leader's message of the current term.

    Raises:
        TidelogError: the term has another leader.
    """
    if replica.leader_id not in (None, leader_id):
        raise protocol_violation(f"term {replica.term} has two leaders, {replica.leader_id} and {leader_id}")
    replica.follow(leader_id)
    replica.leader_contact_ms = replica.now_ms
    replica.restart_election_timer()


def _has_previous(replica: Replica, request: AppendRequest) -> bool:
    if request.prev_index < replica.log.start_index:
        return True
    if replica.log.matches(request.prev_index, request.prev_term):
        return True
    if request.prev_index <= replica.commit_index:
        raise _contradiction(replica, request.prev_index)
    return False


def _take_entries(replica: Replica, entries: tuple[Entry, ...]) -> None:
    log = replica.log
    first = entries[0].index if entries and entries[0].index > log.last_index else log.first_difference(entries)
    if first is None:
        return
    if first <= replica.commit_index:
        raise _contradiction(replica, first)
    if first <= log.last_index:
        log.truncate_from(first)
        replica.durability.forget_from(first)
        replica.voters.truncate_from(first)
    for entry in entries[first - entries[0].index :]:
        log.append(entry)
        if entry.voters is not None:
            replica.voters.add(entry.index, entry.voters)


def _contradiction(replica: Replica, index: int) -> Exception:
    return protocol_violation(
        f"the entry at index {index} is committed with term {replica.log.term_at(index)}, "
        f"but the leader of term {replica.term} has another there"
    )


def _acknowledge(replica: Replica, request: AppendRequest, index: int) -> None:
    response = AppendResponse(replica.node_id, replica.term, True, index, 0, 0, request.read_context)
    replica.reply(request.sender_id, response, acknowledges_log=index > replica.applied_index)


def _refuse(replica: Replica, request: AppendRequest, hint_index: int, hint_term: int) -> None:
    response = AppendResponse(
        replica.node_id, replica.term, False, hint_index, hint_term, request.prev_index, request.read_context
    )
    replica.reply(request.sender_id, response)
