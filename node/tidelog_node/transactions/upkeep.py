"""The work of a shard that no request causes: loading, the abort of timed-out transactions, and expiration.

All transactional ids are read once, in slices, in order to find open and prepared transactions. A periodic check fences
and aborts a transaction that is open longer than its timeout, unless it takes part in an external two-phase commit. An
idle transactional id without a change for ``transactional.id.expiration.ms`` is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tidelog_node.transactions import transitions
from tidelog_node.transactions.entries import Entries
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.writes import Writes

_SLICE = 100


class Upkeep:
    """The upkeep of one shard, in the steps of its time. Times are in ms."""

    def __init__(self, entries: Entries, writes: Writes, settings: TransactionSettings, now_ms: int) -> None:
        self._entries = entries
        self._writes = writes
        self._loading: Iterator[str] | None = entries.stored_ids()
        self._expiring: Iterator[str] | None = None
        self._next_timeouts_ms = now_ms + settings.abort_timed_out_interval_ms
        self._next_expiry_ms = now_ms + settings.remove_expired_interval_ms

    @property
    def next_deadline_ms(self) -> int:
        """The time of the next :meth:`pass_time`."""
        if self._loading is not None or self._expiring is not None:
            return 0
        return min(self._next_timeouts_ms, self._next_expiry_ms)

    def change_settings(self, settings: TransactionSettings, now_ms: int) -> None:
        """Use other settings from now on."""
        self._next_timeouts_ms = min(self._next_timeouts_ms, now_ms + settings.abort_timed_out_interval_ms)
        self._next_expiry_ms = min(self._next_expiry_ms, now_ms + settings.remove_expired_interval_ms)

    def go_on(self, settings: TransactionSettings, wall_ms: int) -> None:
        """Continue loading and expiration with their next ids."""
        self._loading = self._next_slice(self._loading, self._load)
        self._expiring = self._next_slice(self._expiring, lambda name: self._expire(name, settings, wall_ms))

    def pass_time(self, settings: TransactionSettings, now_ms: int, wall_ms: int) -> None:
        """Begin the periodic checks that are due."""
        if self._next_timeouts_ms <= now_ms:
            self._next_timeouts_ms = now_ms + settings.abort_timed_out_interval_ms
            self._abort_timed_out(settings, wall_ms)
        if self._next_expiry_ms <= now_ms:
            self._next_expiry_ms = now_ms + settings.remove_expired_interval_ms
            self._expiring = self._entries.ids()

    def _next_slice(self, left: Iterator[str] | None, visit: Callable[[str], None]) -> Iterator[str] | None:
        if left is None:
            return None
        names = list(islice(left, _SLICE))
        for name in names:
            visit(name)
            self._entries.drop_unneeded(name)
        return left if names else None

    def _load(self, transactional_id: str) -> None:
        self._writes.send_markers(transactional_id, self._entries.get(transactional_id))

    def _expire(self, transactional_id: str, settings: TransactionSettings, wall_ms: int) -> None:
        entry = self._entries.get(transactional_id)
        metadata = entry.metadata
        if metadata is None or not metadata.state.is_idle or entry.open_writes or entry.waiting:
            return
        if metadata.updated_ms + settings.transactional_id_expiration_ms <= wall_ms:
            self._writes.begin(transactional_id, None, settings.version)

    def _abort_timed_out(self, settings: TransactionSettings, wall_ms: int) -> None:
        for name, entry in self._entries:
            ends_ms = None if entry.metadata is None else entry.metadata.times_out_at()
            if entry.metadata is not None and ends_ms is not None and ends_ms <= wall_ms and not entry.open_writes:
                aborted = transitions.abort_fenced(entry.metadata, settings.version, wall_ms)
                self._writes.begin(name, aborted, settings.version)
