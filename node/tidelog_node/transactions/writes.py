"""The records that a shard writes, from the command to the commit, and the markers that follow a prepared state.

A transition is in force as soon as its record is in the log, because records are committed in order. Its answer, and
the markers of a prepared transaction, follow when the record is committed.

The record of a transaction with very many partitions is encoded in several steps. Later records of the shard wait for
it, so that the ids of writes are always in the order of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, KeysView

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.shards.deadlines import Deadlines
from tidelog_node.shards.events import ShardRecord, WriteRecords
from tidelog_node.shards.write_errors import coordinator_error
from tidelog_node.transactions import transitions
from tidelog_node.transactions.calls import Calls
from tidelog_node.transactions.entries import ActingRequest, Entries, Entry, Waiting
from tidelog_node.transactions.events import Command, WriteMarkers
from tidelog_node.transactions.record_format import encode_key, encode_value_in_steps
from tidelog_node.transactions.requests import TransactionResponse, refuse
from tidelog_node.transactions.states import LEGAL_TRANSITIONS, Producer, TransactionMetadata, TransactionState

_RETRY_MS = 100
_RECORDS_PER_STEP = 100


@dataclass(frozen=True, slots=True)
class Write:
    """A record that is being written, and the response to send after its commit."""

    transactional_id: str
    metadata: TransactionMetadata | None
    """The state after the record; None removes the transactional id."""
    call_id: int | None = None
    response: TransactionResponse | None = None
    refused: ActingRequest | None = None
    """The request of the call, to be refused if the write fails."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """The record of a write, which is not in the log yet. Each step of ``value`` is a part of the work."""

    write_id: int
    key: bytes
    value: Generator[None, None, bytes | None]


class Writes:
    """The writes of one shard that are neither committed nor failed."""

    def __init__(self, entries: Entries, calls: Calls, commands: list[Command]) -> None:
        self._entries = entries
        self._calls = calls
        self._commands = commands
        self._open: dict[int, Write] = {}
        self._next_id = 1
        self._encodings: deque[_Encoding] = deque()
        self._retries = Deadlines()
        """The time of the next attempt to record a complete transaction, by transactional id."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next :meth:`go_on`."""
        return 0 if self._encodings else self._retries.next_ms()

    def ids(self) -> KeysView[int]:
        """Return the ids of the open writes."""
        return self._open.keys()

    def calls(self) -> list[int]:
        """Return the calls that are answered when open writes are committed."""
        return [write.call_id for write in self._open.values() if write.call_id is not None]

    def begin(
        self,
        transactional_id: str,
        after: TransactionMetadata | None,
        version: int,
        waiting: Waiting | None = None,
        response: TransactionResponse | None = None,
    ) -> None:
        """Write the next state of a transactional id, and answer the request of ``waiting`` after the commit."""
        write_id, self._next_id = self._next_id, self._next_id + 1
        call_id, request = (None, None) if waiting is None else (waiting.call_id, waiting.request)
        self._open[write_id] = Write(transactional_id, after, call_id, response, request)
        entry = self._entries.get(transactional_id)
        entry.open_writes.append(write_id)
        entry.is_appending = True
        self._encodings.append(_Encoding(write_id, encode_key(transactional_id), _value(after, version)))
        if len(self._encodings) == 1:
            self._encode()

    def note_written(self, write_id: int) -> Entry:
        """Put a state into force, and return its transactional id's entry, whose waiting requests may go on."""
        write = self._open[write_id]
        entry = self._entries.get(write.transactional_id)
        before = TransactionState.DEAD if write.metadata is None else write.metadata.state
        assert entry.metadata is None or entry.metadata.state in LEGAL_TRANSITIONS[before]
        entry.metadata = write.metadata
        entry.is_appending = entry.markers_sent = False
        return entry

    def note_committed(self, write_id: int) -> None:
        """Send the answers that have waited for a record, and the markers of a prepared state."""
        write = self._open.pop(write_id)
        entry = self._entries.get(write.transactional_id)
        entry.open_writes.remove(write_id)
        if write.call_id is not None and write.response is not None:
            self._calls.answer(write.call_id, write.response)
        self._calls.note_committed(write_id)
        self.send_markers(write.transactional_id, entry)
        self._entries.drop_unneeded(write.transactional_id)

    def note_failed(self, write_id: int, error: TidelogError, now_ms: int) -> None:
        """Refuse the call of a write that was not appended. The state is unchanged."""
        write = self._open.pop(write_id)
        entry = self._entries.get(write.transactional_id)
        entry.open_writes.remove(write_id)
        entry.is_appending = False
        said = coordinator_error(error) or error_for(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
        if write.call_id is not None and write.refused is not None:
            self._calls.answer(write.call_id, refuse(write.refused, said))
        self._calls.note_failed(write_id, entry, said)
        if entry.metadata is not None and entry.metadata.state.is_prepared and write.metadata is not None:
            self._retries.set(write.transactional_id, now_ms + _RETRY_MS)
        self._entries.drop_unneeded(write.transactional_id)

    def send_markers(self, transactional_id: str, entry: Entry) -> None:
        """Request the markers of a prepared state that is committed, once."""
        metadata = entry.metadata
        if entry.open_writes or metadata is None or not metadata.state.is_prepared or entry.markers_sent:
            return
        entry.markers_sent = True
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        self._commands.append(
            WriteMarkers(transactional_id, metadata.producer, committed, metadata.partitions, metadata.client_version)
        )

    def complete(self, transactional_id: str, producer: Producer, version: int, wall_ms: int) -> None:
        """Record that a prepared transaction is complete, unless that is done or belongs to an earlier transaction."""
        entry = self._entries.get(transactional_id)
        metadata = entry.metadata
        if entry.open_writes or metadata is None or not metadata.state.is_prepared or metadata.producer != producer:
            return
        self.begin(transactional_id, transitions.complete(metadata, wall_ms), version)

    def go_on(self, version: int, now_ms: int, wall_ms: int) -> None:
        """Continue with records of many partitions, and with complete transactions that could not be recorded."""
        self._encode()
        for name in self._retries.pop_expired(now_ms):
            metadata = self._entries.get(name).metadata
            if metadata is not None:
                self.complete(name, metadata.producer, version, wall_ms)

    def _encode(self) -> None:
        """Take a step of the oldest encoding. Write the records that are complete."""
        for _ in range(_RECORDS_PER_STEP):
            if not self._encodings:
                return
            encoding = self._encodings[0]
            try:
                next(encoding.value)
                return
            except StopIteration as end:
                self._encodings.popleft()
                self._commands.append(WriteRecords(encoding.write_id, (ShardRecord(encoding.key, end.value),)))

    def check_invariants(self) -> None:
        """Assert that the entries have exactly the open writes, in order."""
        for _, entry in self._entries:
            assert list(entry.open_writes) == sorted(entry.open_writes)
            assert entry.open_writes or not entry.markers_sent or (entry.metadata and entry.metadata.state.is_prepared)
            assert all(write_id in self._open for write_id in entry.open_writes)


def _value(metadata: TransactionMetadata | None, version: int) -> Generator[None, None, bytes | None]:
    """Encode the value of a state's record in steps; None removes the transactional id."""
    if metadata is None:
        return None
    return (yield from encode_value_in_steps(metadata, version))
