"""Divergence of two logs, found by leader epochs alone (KIP-101, KIP-279, KIP-320), never by the high watermark.

A log is a sequence of epochs, each beginning at an offset. Two logs that have the same epoch have the same records of
it up to the smaller of its two ends, and the same records before it. So the leader returns its largest epoch that is
not above the follower's last one, with its end. The follower cuts everything above that end, and asks again while it
does not know that epoch.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch of a log and its exclusive end offset."""

    epoch: LeaderEpoch
    end_offset: int


def find_divergence(last_fetched_epoch: LeaderEpoch, fetch_offset: int, leader_end: EpochEnd) -> EpochEnd | None:
    """Return the leader's answer to a follower whose log is not a prefix of the leader's, or None if it is a prefix.

    ``leader_end`` is the leader's largest epoch not above ``last_fetched_epoch``. If the leader's log has only later
    epochs, it is ``last_fetched_epoch`` itself with the start of the first of them.
    """
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation_offset(leader_end: EpochEnd, own_end: EpochEnd | None, log_end_offset: int) -> int:
    """Return the offset at which a follower cuts its log after the leader answered ``leader_end``.

    ``own_end`` is the same lookup in the follower's log for ``leader_end.epoch``; None if that log has only later
    epochs. Above ``leader_end`` the leader has only epochs that the follower does not know; above ``own_end`` the
    follower has only epochs that the leader does not know. Neither part can be common.
    """
    ends = [leader_end.end_offset, log_end_offset]
    return min(ends if own_end is None else [own_end.end_offset, *ends])
