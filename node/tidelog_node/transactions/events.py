"""The events that a shard of the transaction coordinator processes and the commands that it returns to the shell.

The shell executes each :class:`WriteRecords` before it delivers the next event. It appends the records to the shard's
partition and answers with :class:`RecordsWritten`, or with :class:`WriteFailed` if nothing was appended. Later it
delivers :class:`RecordsCommitted` once every in-sync replica has the records. Writes are committed in order. A call
that has not begun to act when it is abandoned has no effect. These events are those of a shard of groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.events import RecordsCommitted, RecordsWritten, RequestAbandoned, TimePassed, WriteFailed
from tidelog_node.transactions.requests import TransactionRequest, TransactionResponse
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import Producer, TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A record of __transaction_state. A ``value`` of None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A call. One :class:`Respond` answers it, possibly later."""

    call_id: int
    request: TransactionRequest


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """The answer to :class:`AllocateProducerId`: an id that nobody had before, or the error."""

    transactional_id: str
    producer_id: int | None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The markers of :class:`WriteMarkers` are in all partitions that still exist, on all in-sync replicas."""

    transactional_id: str
    producer: Producer


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The settings of the node, or the finalized ``transaction.version``, have changed."""

    settings: TransactionSettings


Event: TypeAlias = (
    RequestReceived
    | RequestAbandoned
    | RecordsWritten
    | RecordsCommitted
    | WriteFailed
    | ProducerIdAllocated
    | MarkersWritten
    | SettingsChanged
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Append these records as one batch. The module describes the events that follow."""

    write_id: int
    records: tuple[TransactionRecord, ...]


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a call."""

    call_id: int
    response: TransactionResponse


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Get a new producer id. :class:`ProducerIdAllocated` follows. At most one per transactional id is open."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the markers of a prepared transaction to its partitions until each has one.

    :class:`MarkersWritten` follows. The shard's leader epoch is the coordinator epoch of the markers.
    """

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int
    """The ``transaction.version`` of the client that ended the transaction."""


Command: TypeAlias = WriteRecords | Respond | AllocateProducerId | WriteMarkers
