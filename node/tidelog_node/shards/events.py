"""The events that the shard of any coordinator processes and the commands that it returns to the shell.

A shard is the state that one partition of an internal topic holds, such as the groups of a partition of
__consumer_offsets. The shell executes each :class:`WriteRecords` before it delivers the next event. It appends the
records to the shard's partition and answers with :class:`RecordsWritten`, or with :class:`WriteFailed` if nothing was
appended. Later it delivers :class:`RecordsCommitted` once every in-sync replica has the records, or
:class:`WriteFailed` if that is uncertain. Responses that depend on a write are returned as commands when it is
committed. A kind of shard may have more events and commands.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The caller's ``client.id`` and host address, as descriptions show them."""

    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A record of the shard's partition. A ``value`` of None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RequestReceived(Generic[RequestT]):
    """A call. One :class:`Respond` answers it, possibly much later."""

    call_id: int
    request: RequestT
    client: ClientIdentity


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """The caller no longer waits for the answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """The records are in the log but not yet committed."""

    write_id: int


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The records are committed. Writes are committed in order."""

    write_id: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The records were not appended. After :class:`RecordsWritten`, it is unknown whether they will be committed."""

    write_id: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


ShardEvent: TypeAlias = (
    RequestReceived[RequestT] | RequestAbandoned | RecordsWritten | RecordsCommitted | WriteFailed | TimePassed
)


@dataclass(frozen=True, slots=True)
class RecordsTransaction:
    """The transaction that records belong to. They take effect when it is committed.

    ``guard`` is the guard under which the transaction was verified in the shard's partition.
    """

    producer_id: int
    producer_epoch: int
    guard: int


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Append these records as one batch. The module describes the events that follow."""

    write_id: int
    records: tuple[ShardRecord, ...]
    transaction: RecordsTransaction | None = None


@dataclass(frozen=True, slots=True)
class Respond(Generic[ResponseT]):
    """Answer a call."""

    call_id: int
    response: ResponseT


ShardCommand: TypeAlias = WriteRecords | Respond[ResponseT]
