"""What the controller needs of a Raft engine, and what an engine tells the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of the quorum (None: unknown) in an epoch; an epoch is a Raft term."""

    leader_id: int | None
    epoch: int
    is_self: bool


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """One entry of the log that is final. The engine's own entries have an empty payload."""

    index: int
    term: int
    payload: bytes


class RaftListener(Protocol):
    """Called on the event loop, in order. It must neither block nor raise: what it raises stops the engine."""

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        """Take entries that follow those of the call before without a gap; after a start the first index is 1."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Take a new leader or epoch.

        A new leader may propose at once, but has been given all that was committed before its epoch only when
        the first entry of the epoch comes to :meth:`on_commit`.
        """


class RaftEngine(Protocol):
    """One voter. All calls are made on its event loop."""

    async def start(self, listener: RaftListener) -> None:
        """Load the log and take part; the listener's calls begin before this returns or later."""

    async def stop(self) -> None:
        """Take no more part. What was proposed and not committed may still commit on the other voters."""

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows of."""

    def propose(self, payload: bytes, epoch: int) -> int:
        """Put ``payload`` in the leader's log and return its index; it is not committed yet.

        The index then commits with this epoch as its term, or with another one (the proposal is lost), or never.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead in ``epoch``; KAFKA_STORAGE_ERROR, it has failed.
        """

    async def read_barrier(self) -> int:
        """Return an index that covers all that was committed before the call; up to it all went to the listener.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead or ceases to; KAFKA_STORAGE_ERROR, it has failed.
        """
