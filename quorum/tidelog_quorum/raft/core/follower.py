"""What a replica does with the appends of a leader (figure 2, AppendEntries, receiver).

- An append of an older term is refused, with the own term. The refusal confirms no reads: its receiver may lead again
  in the own term, where it numbers its reads anew.
- One whose previous entry the log does not have is refused, with the latest place where the logs may agree. All up to
  the commit index agree with every leader, so the place is never before that.
- Only entries that conflict are dropped, with all that follow them, and never a committed one (paper 5.3). What an
  append does not mention stays.
- The commit index rises no further than what the append proves equal.
- An acknowledgement covers what the append proves equal, and leaves when that is on the disk.
- The set of voters that an entry brings is in force from then on, and goes again if the entry is dropped (thesis 4.1).
- While a snapshot is being put in the place of the log, appends change nothing. The answer says what was proven
  before, so that the leader knows that this replica lives, and offers the entries again.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog_quorum.raft.core.messages import AppendRequest, AppendResponse, Entry, EntryKind
from tidelog_quorum.raft.core.replica import Replica, broken_promise
from tidelog_quorum.raft.core.voters import VoterSet


def on_append_request(replica: Replica, request: AppendRequest) -> None:
    """Take a leader's entries, or say why not."""
    if request.term < replica.term:
        _refuse(replica, replace(request, read_context=0), hint_index=0, hint_term=0)
        return
    hear_leader(replica, request.sender_id)
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


def hear_leader(replica: Replica, leader_id: int) -> None:
    """Follow the sender of a leader's message of the current term.

    Raises:
        TidelogError: the term has another leader.
    """
    if replica.leader_id not in (None, leader_id):
        raise broken_promise(f"term {replica.term} has two leaders, {replica.leader_id} and {leader_id}")
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
        if entry.kind is EntryKind.VOTERS:
            replica.voters.add(entry.index, VoterSet.decode(entry.payload))


def _contradiction(replica: Replica, index: int) -> Exception:
    return broken_promise(
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
