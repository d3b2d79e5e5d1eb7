"""The in-sync replica set as its leader knows it: committed, or with one change on its way to the controller.

The states are Kafka's CommittedPartitionState, PendingExpandIsr and PendingShrinkIsr (KIP-497), and one that withdraws
a refused expand. They uphold one property: the set that the controller has stored is always a subset of ``maximal``. So
a high watermark that is the minimum over ``maximal`` is on every replica that may be elected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch


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
class _Pending:
    """A proposal that the controller has not confirmed."""

    committed: CommittedIsr

    @property
    def members(self) -> frozenset[BrokerId]:
        """Members that count toward min.insync.replicas: the old set until the controller confirms the new one."""
        return self.committed.members


@dataclass(frozen=True, slots=True)
class _PendingWithJoining(_Pending):
    """A proposal while the controller may have stored the set with ``joining``."""

    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.committed.members | {self.joining}


@dataclass(frozen=True, slots=True)
class PendingExpand(_PendingWithJoining):
    """A proposal to add ``joining``. The controller may have stored it already."""

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The proposed set."""
        return self.maximal


@dataclass(frozen=True, slots=True)
class PendingShrink(_Pending):
    """A proposal to remove ``leaving``. The controller may not have stored it yet."""

    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the controller's set."""
        return self.committed.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The proposed set."""
        return self.committed.members - self.leaving


@dataclass(frozen=True, slots=True)
class PendingWithdrawal(_PendingWithJoining):
    """A proposal of the committed set that replaces an expand of unknown outcome.

    The controller stores it with a new partition epoch, so it cannot store a copy of the expand afterwards.
    """

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The proposed set."""
        return self.committed.members


@dataclass(frozen=True, slots=True)
class FormerLeadership:
    """The knowledge of a leader whose log was closed, for the replica that is opened again in the same process.

    The controller may have stored a set that the metadata does not show yet. ``broker_epochs`` are those with which the
    followers last fetched.
    """

    leader_epoch: LeaderEpoch
    isr: IsrState
    broker_epochs: Mapping[BrokerId, BrokerEpoch]


PendingIsr: TypeAlias = PendingExpand | PendingShrink | PendingWithdrawal
IsrState: TypeAlias = CommittedIsr | PendingIsr
