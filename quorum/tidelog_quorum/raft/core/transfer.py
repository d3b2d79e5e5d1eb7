"""The hand-over of leadership to another voter (thesis 3.10).

- From the request on, the leader accepts no proposals and begins no change of the voters, so its log does not grow.
- Once the target's disk has the whole log, the leader asks the target to campaign at once: its log is as good as any,
  and the others answer although they hear from a leader. The message is repeated with every heartbeat; a second one
  finds the target in a later term and does nothing.
- The leader leads until it learns of the later term. After an election timeout it accepts proposals again.
- The request is done when another voter is known to lead in a later term. It ends within an election timeout, before
  the replica that resigned could be elected again.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import TransferDone
from tidelog_quorum.raft.core.events import TransferRequested
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import TimeoutNow
from tidelog_quorum.raft.core.replica import Refusal, Replica, Transfer


def on_transfer_requested(replica: Replica, leader: Leadership, event: TransferRequested) -> Refusal | None:
    """Begin a hand-over. Return the reason if that is not possible."""
    target = leader.best_successor(replica.now_ms) if event.to is None else event.to
    if replica.transfer is not None:
        target = replica.transfer.target
        return ErrorCode.INVALID_REQUEST, f"it is already transferring the leadership to voter {target}"
    if target is None:
        return ErrorCode.INVALID_REQUEST, "there is no other voter"
    if target == replica.node_id:
        return ErrorCode.INVALID_REQUEST, "it is already the leader"
    if target not in replica.voters.current:
        voters = list(replica.voters.current.ids)
        return ErrorCode.VOTER_NOT_FOUND, f"replica {target} is not among the voters {voters}"
    wait_ms = min(event.timeout_ms, replica.config.election_timeout_ms)
    replica.transfer = Transfer(event.request_id, target, replica.term, replica.now_ms + wait_ms)
    return None


def advance(replica: Replica, transfer: Transfer) -> None:
    """Ask the target to campaign when due, and complete the request."""
    if replica.term > transfer.term and replica.leader_id is not None and replica.leader_id != replica.node_id:
        replica.transfer = None
        replica.outbox.append(TransferDone(transfer.request_id))
    elif replica.now_ms >= transfer.deadline_ms:
        replica.transfer = None
        reason = f"voter {transfer.target} did not take over in time"
        replica.refuse(transfer.request_id, ErrorCode.REQUEST_TIMED_OUT, reason)
    elif isinstance(replica.role, Leadership):
        _ask_target(replica, replica.role, transfer)


def _ask_target(replica: Replica, leader: Leadership, transfer: Transfer) -> None:
    asked_ms = transfer.asked_ms
    is_due = asked_ms is None or replica.now_ms - asked_ms >= replica.config.heartbeat_interval_ms
    if is_due and leader.progress[transfer.target].match_index == replica.log.last_index:
        transfer.asked_ms = replica.now_ms
        replica.reply(transfer.target, TimeoutNow(replica.node_id, replica.term))
