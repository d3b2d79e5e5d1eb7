"""Decisions of a leader that mirrors a partition of another cluster. Pure.

- It fetches as a follower does, with the source's leader epoch and the epoch of its last batch, once its own leader
  epoch is at least the source's: no batch has an epoch above that of its leader.
- After a truncation it asks for a higher leader epoch, although replication does not need one: clients compare their
  positions with the log when the leader epoch changes.
- It reports a drained mirror when its high watermark has reached the end that the source had after the promotion began.
"""

from __future__ import annotations

import enum
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import LeaderEpoch

_INT32: Final = 4
_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12
_NO_WISH: Final = LeaderEpoch(0)


class Step(enum.Enum):
    """The next step of a mirror's leader."""

    AWAIT_SOURCE = enum.auto()
    """The source has no leader, or none is known."""
    RAISE_EPOCH = enum.auto()
    FETCH = enum.auto()


@dataclass(slots=True)
class MirrorTerm:
    """One leader epoch of a mirror's leader. Its owner passes what it learns, and asks for the next step."""

    leader_epoch: LeaderEpoch
    source_epoch: LeaderEpoch | None = None
    """The leader epoch of the source's leader; None while none is known."""
    wanted_epoch: LeaderEpoch = _NO_WISH
    """The leader epoch that the partition needs before this leader fetches again."""

    def learn_source(self, source_epoch: LeaderEpoch | None) -> None:
        """Process the source's leader epoch. An older one than is known is outdated."""
        if source_epoch is None or self.source_epoch is None or source_epoch > self.source_epoch:
            self.source_epoch = source_epoch

    def note_truncated(self) -> None:
        """Ask for a higher leader epoch after a truncation."""
        self.wanted_epoch = LeaderEpoch(self.leader_epoch + 1)

    @property
    def least_epoch(self) -> LeaderEpoch:
        """The least leader epoch in which the partition may be fetched."""
        return LeaderEpoch(max(self.wanted_epoch, self.source_epoch or 0))

    @property
    def next_step(self) -> Step:
        """The next step."""
        if self.leader_epoch < self.least_epoch:
            return Step.RAISE_EPOCH
        return Step.AWAIT_SOURCE if self.source_epoch is None else Step.FETCH


def whole_batches(records: bytes | bytearray | memoryview) -> memoryview:
    """Return the part of a fetch's records that consists of whole batches: a source may cut the last one off."""
    view, end = memoryview(records), 0
    while end + _BEFORE_LENGTH <= len(view):
        length = int.from_bytes(view[end + _LENGTH_AT : end + _LENGTH_AT + _INT32])
        following = end + _BEFORE_LENGTH + length
        if following > len(view):
            break
        end = following
    return view[:end]
