"""Reads a controller's metadata log, or one of its snapshots, as rows to print. Read-only; blocking."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message

from tidelog.v1 import metadata_record_pb2 as pb
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import uuid_text
from tidelog_quorum.metadata.batches import read_frames
from tidelog_quorum.raft.core.messages import Entry, EntryKind
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.storage.log_format import Identity
from tidelog_quorum.raft.storage.snapshot_files import SUFFIX, snapshot_path
from tidelog_quorum.raft.storage.stored_log import StoredState, read_stored_log
from tidelog_quorum.raft.voters_record import encode_voters

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})" + re.escape(SUFFIX))
_READ_BYTES = 1024 * 1024
_DATABASE_FILE = "CURRENT"
_LOCK_FILE = "LOCK"
_PYSYNCOBJ_FOLDER = "pysyncobj"
_UUID_SIZE = 16
_TYPE = "type"
_REDACTED = "(redacted)"
"""The text in place of secrets, as in Kafka's RecordRedactor."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The properties of a log or a snapshot, by name, in the order of output."""

    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of the log; a snapshot is one entry at its end. ``records`` are values of ``record_values``."""

    offset: int
    epoch: int
    kind: str
    size: int
    records: list[dict[str, Any]]


Row = Summary | EntryRow


def is_snapshot(path: Path) -> bool:
    """Return whether a path has a snapshot's name."""
    return path.name.endswith(SUFFIX)


def dump_log(directory: Path, from_offset: int, max_entries: int | None) -> Iterator[Row]:
    """Yield the summary of the log in a folder, then its entries from an offset on.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, there is no log, a running controller uses it, or the disk failed;
            CORRUPT_MESSAGE, it is damaged; UNSUPPORTED_VERSION, its format is unknown.
    """
    _check_is_log(directory)
    with _locked(directory):
        identity, stored = read_stored_log(directory)
    yield _summary(directory, identity, stored)
    wanted = [entry for entry in stored.entries if entry.index >= from_offset]
    for entry in wanted if max_entries is None else wanted[:max_entries]:
        yield EntryRow(entry.index, entry.term, entry.kind.name, _size_of(entry), _entry_values(entry))


def dump_snapshot(path: Path, max_records: int | None) -> Iterator[Row]:
    """Yield the summary of a snapshot, then its records, several in each row.

    Raises:
        TidelogError: CORRUPT_MESSAGE, it is damaged, or the file's name is not a snapshot's; KAFKA_STORAGE_ERROR.
    """
    match = _SNAPSHOT_NAME.fullmatch(path.name)
    if match is None:
        text = f"{path} is not named as a snapshot: 20 digits of an offset, 10 of an epoch, {SUFFIX}"
        raise error_for(ErrorCode.CORRUPT_MESSAGE, text)
    offset, epoch = (int(digits) for digits in match.groups())
    yield Summary({"snapshot": str(path), "offset": offset, "epoch": epoch, "bytes": _size(path)})
    left = max_records
    for batch in read_frames(_chunks(path)):
        if left is not None and left <= 0:
            return
        records = _records(batch, f"a batch of {path}")[:left]
        left = None if left is None else left - len(records)
        yield EntryRow(offset, epoch, "SNAPSHOT", len(batch), records)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a running controller; RocksDB does not take it for read-only access."""
    path = directory / _LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        text = f"a controller runs on {directory}: stop it first, or read a snapshot of it"
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
    finally:
        os.close(descriptor)


def _check_is_log(directory: Path) -> None:
    if (directory / _PYSYNCOBJ_FOLDER).exists():
        text = f"{directory} has the log of controller.quorum.engine=pysyncobj, which cannot be shown"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    if not (directory / _DATABASE_FILE).exists():
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"there is no metadata log in {directory}")


def _summary(directory: Path, identity: Identity, stored: StoredState) -> Summary:
    values: dict[str, Any] = {
        "log": str(directory),
        "clusterId": identity.cluster_id,
        "controllerId": identity.node_id,
        "directoryId": uuid_text(identity.directory_id) if identity.directory_id else "-",
        "epoch": stored.hard_state.term,
        "votedFor": "-" if stored.hard_state.voted_for is None else stored.hard_state.voted_for,
        "logStartOffset": stored.log_start[0] + 1,
        "logEndOffset": stored.last_index,
        "snapshot": "-",
    }
    if stored.snapshot is not None:
        path = snapshot_path(directory, stored.snapshot.last_index, stored.snapshot.last_term)
        values |= {"snapshot": path.name, "snapshotVoters": _voters(stored.snapshot.voters)}
    return Summary(values)


def _size_of(entry: Entry) -> int:
    return len(entry.payload) if entry.voters is None else len(encode_voters(entry.voters))


def _entry_values(entry: Entry) -> list[dict[str, Any]]:
    if entry.voters is not None:
        return [{"type": "VOTERS_RECORD", "voters": _voters(entry.voters)}]
    if entry.kind is EntryKind.NO_OP:
        return []
    return _records(entry.payload, f"the entry at {entry.index}")


def _voters(voters: VoterSet) -> list[dict[str, Any]]:
    return [
        {
            "id": voter.voter_id,
            "endpoint": str(voter.endpoints),
            "directory_id": uuid_text(voter.directory_id) if voter.directory_id else "-",
        }
        for voter in voters
    ]


def _records(payload: bytes, what: str) -> list[dict[str, Any]]:
    try:
        return [record_values(record) for record in pb.MetadataRecordBatch.FromString(payload).records]
    except DecodeError as error:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{what} is not a batch of metadata records") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error


def record_values(record: pb.MetadataRecord) -> dict[str, Any]:
    """Return a record's type and all its fields, including those with default values; ids are in Kafka's text form.

    Fields with the option ``debug_redact`` are shown without their values.
    """
    kind = record.WhichOneof("record")
    if kind is None:
        return {_TYPE: "unknown"}
    message: Message = getattr(record, kind)
    # "TopicRecord" is the topic's record; Kafka's dumps say TOPIC_RECORD.
    return {_TYPE: f"{kind.upper()}_RECORD", **_values(message)}


def record_line(values: dict[str, Any]) -> str:
    """Return ``TYPE field=value ...``."""
    fields = " ".join(f"{name}={_text(value)}" for name, value in values.items() if name != _TYPE)
    return f"{values[_TYPE]} {fields}".rstrip()


def _values(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.GetOptions().debug_redact:
            shown[field.name] = _REDACTED
        elif field.is_repeated:
            shown[field.name] = [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            shown[field.name] = _value(field, value)
    return shown


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return _values(value)
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == _UUID_SIZE else value.hex()
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(_text(v) for v in value)}]"
    if isinstance(value, dict):
        return f"({' '.join(f'{k}={_text(v)}' for k, v in value.items())})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (not value or any(c.isspace() or not c.isprintable() or c in '"()[]' for c in value)):
        return json.dumps(value)
    return str(value)
