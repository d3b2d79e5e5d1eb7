"""What the application has, and what it is being told: partitions change hands one command at a time."""

from __future__ import annotations

from tidelog.consumer.membership.events import Assign, Key, Revoke


class Handover:
    """One membership's. A partition is ``owned`` from when it is given until the application has given it up.

    At most one :class:`Revoke` or :class:`Assign` is being served at a time.
    """

    def __init__(self) -> None:
        self.owned: frozenset[Key] = frozenset()
        self.serving: Revoke | Assign | None = None
        self._last_id = 0

    def assign(self, partitions: frozenset[Key], *, incremental: bool) -> Assign:
        """Give partitions, on top of the others or in place of none."""
        assert self.serving is None
        assert not partitions & self.owned
        self._last_id += 1
        self.owned |= partitions
        command = Assign(self._last_id, partitions, incremental)
        self.serving = command
        return command

    def revoke(self, partitions: frozenset[Key], *, incremental: bool, lost: bool = False) -> Revoke:
        """Take partitions that the application has."""
        assert self.serving is None
        assert partitions <= self.owned
        self._last_id += 1
        command = Revoke(self._last_id, partitions, incremental, lost)
        self.serving = command
        return command

    def served(self, rebalance_id: int) -> bool:
        """Take the application's answer; say whether it is to the command that is being served."""
        command = self.serving
        if command is None or command.rebalance_id != rebalance_id:
            return False
        self.serving = None
        if isinstance(command, Revoke):
            self.owned -= command.partitions
        return True

    def check_invariants(self) -> None:
        """Raise AssertionError when what is being served is not part of what the application has."""
        if self.serving is not None:
            assert self.serving.partitions <= self.owned
            assert self.serving.incremental or self.serving.partitions == self.owned
