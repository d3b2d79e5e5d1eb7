"""Where two logs part, told by leader epochs alone (KIP-101, KIP-279, KIP-320): never by the high watermark.

A log is a sequence of epochs, each beginning at an offset. Two logs that hold the same epoch hold the same
records of it up to the smaller of its two ends, and the same records before it. So the leader names the largest
of its epochs that is not above the follower's last one, with its end; the follower cuts what lies behind, and asks
again while it does not know that epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.ids import LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch of a log and the offset (exclusive) at which it ends there."""

    epoch: LeaderEpoch
    end_offset: int


def find_divergence(last_fetched_epoch: LeaderEpoch, fetch_offset: int, leader_end: EpochEnd) -> EpochEnd | None:
    """Return what a leader answers to a follower whose log is not a prefix of its own, or None when it is one.

    ``leader_end`` is the leader's largest epoch not above ``last_fetched_epoch``; where its log has only later ones,
    ``last_fetched_epoch`` itself with the start of the first of them.
    """
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation_offset(leader_end: EpochEnd, own_end: EpochEnd | None, log_end_offset: int) -> int:
    """Return where a follower cuts its log after the leader answered ``leader_end``.

    ``own_end`` is the follower's answer to the same question for ``leader_end.epoch``; None when it knows no epoch
    as late. Behind ``leader_end`` the leader has only epochs that the follower does not know, behind ``own_end`` the
    follower has only epochs that the leader does not know: neither part can be common.
    """
    ends = [leader_end.end_offset, log_end_offset]
    return min(ends if own_end is None else [own_end.end_offset, *ends])
