"""Where two logs part, told by leader epochs alone (KIP-101, KIP-279, KIP-320): never by the high watermark.

A log is a sequence of epochs, each beginning at an offset. Two logs that hold the same epoch hold the same
records of it up to the smaller of its two ends, and the same records before it. So the leader names the largest
of its epochs that is not above the follower's last one, with its end; the follower cuts what lies behind, and asks
again while it does not know that epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.ids import LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch of a log and the offset (exclusive) at which it ends there."""

    epoch: LeaderEpoch
    end_offset: int


def find_divergence(
    last_fetched_epoch: LeaderEpoch, fetch_offset: int, leader_end: EpochEnd | None, log_start_offset: int
) -> EpochEnd | None:
    """Return what a leader answers to a follower whose log is not a prefix of its own, or None when it is one.

    ``leader_end`` is the leader's largest epoch not above ``last_fetched_epoch``; None when its log has only later
    ones, and then nothing of the follower's can be kept.
    """
    if leader_end is None:
        return EpochEnd(last_fetched_epoch, log_start_offset) if fetch_offset > log_start_offset else None
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation_offset(
    leader_end: EpochEnd, own_end: EpochEnd | None, log_start_offset: int, log_end_offset: int
) -> int:
    """Return where a follower cuts its log after the leader answered ``leader_end``.

    ``own_end`` is the follower's largest epoch not above the leader's; None when its log has only later ones.
    """
    if own_end is None:
        return log_start_offset
    if own_end.epoch != leader_end.epoch:
        return min(own_end.end_offset, log_end_offset)
    return max(log_start_offset, min(own_end.end_offset, leader_end.end_offset, log_end_offset))
