"""The in-sync replica set as its leader knows it: committed, or with one change on its way to the controller.

The states are Kafka's CommittedPartitionState, PendingExpandIsr and PendingShrinkIsr (KIP-497), and one in which a
refused expand is withdrawn. The property they uphold: whatever set the controller has stored, it is a subset of
``maximal``, so a high watermark that is the minimum over ``maximal`` is on every replica that may be elected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.ids import BrokerId, PartitionEpoch


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The set that the controller confirmed at ``partition_epoch``."""

    members: frozenset[BrokerId]
    partition_epoch: PartitionEpoch

    @property
    def committed(self) -> CommittedIsr:
        """The last state that the controller confirmed."""
        return self

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.members


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """``joining`` was proposed as a further member; the controller may have agreed already."""

    committed: CommittedIsr
    joining: BrokerId

    @property
    def members(self) -> frozenset[BrokerId]:
        """What counts for min.insync.replicas: a member that may not have joined does not."""
        return self.committed.members

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.committed.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The set that was sent to the controller."""
        return self.maximal


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """``leaving`` were proposed to be taken out; the controller may not have agreed yet."""

    committed: CommittedIsr
    leaving: frozenset[BrokerId]

    @property
    def members(self) -> frozenset[BrokerId]:
        """What counts for min.insync.replicas: until confirmed, the old set."""
        return self.committed.members

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.committed.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The set that was sent to the controller."""
        return self.committed.members - self.leaving


@dataclass(frozen=True, slots=True)
class PendingWithdrawal:
    """The committed set was proposed anew, in place of an expand that may or may not be stored.

    The controller stores it with a new partition epoch, so that no copy of the expand can be stored afterwards.
    """

    committed: CommittedIsr
    joining: BrokerId

    @property
    def members(self) -> frozenset[BrokerId]:
        """Members that count toward min.insync.replicas."""
        return self.committed.members

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.committed.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The set that was sent to the controller."""
        return self.committed.members


PendingIsr: TypeAlias = PendingExpand | PendingShrink | PendingWithdrawal
IsrState: TypeAlias = CommittedIsr | PendingIsr
