"""The application's partitions and the pending change: partitions change hands one command at a time."""

from __future__ import annotations

from tidelog.consumer.membership.events import Assign, Key, Revoke


class Handover:
    """The state of one membership. A partition is ``owned`` from its assignment until the application has released it.

    At most one :class:`Revoke` or :class:`Assign` is pending.
    """

    def __init__(self) -> None:
        self.owned: frozenset[Key] = frozenset()
        self.serving: Revoke | Assign | None = None
        self._last_id = 0

    def assign(self, partitions: frozenset[Key], *, incremental: bool) -> Assign:
        """Assign partitions, in addition to others or to none."""
        assert self.serving is None
        assert not partitions & self.owned
        self._last_id += 1
        self.owned |= partitions
        command = Assign(self._last_id, partitions, incremental)
        self.serving = command
        return command

    def revoke(self, partitions: frozenset[Key], *, incremental: bool, lost: bool = False) -> Revoke:
        """Revoke partitions that the application owns."""
        assert self.serving is None
        assert partitions <= self.owned
        self._last_id += 1
        command = Revoke(self._last_id, partitions, incremental, lost)
        self.serving = command
        return command

    def served(self, rebalance_id: int) -> bool:
        """Apply the application's answer; return True if it belongs to the pending command."""
        command = self.serving
        if command is None or command.rebalance_id != rebalance_id:
            return False
        self.serving = None
        if isinstance(command, Revoke):
            self.owned -= command.partitions
        return True

    def check_invariants(self) -> None:
        """Raise AssertionError if the pending command does not match the owned partitions."""
        if self.serving is not None:
            assert self.serving.partitions <= self.owned
            assert self.serving.incremental or self.serving.partitions == self.owned
