"""Rows with Kafka's field names (kafka-dump-log) for each kind of file, and the problems found on the way."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from itertools import pairwise

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Record,
    RecordBatchHeader,
    check_records,
    iter_records,
)
from tidelog_node.log.directory.offset_checkpoint_file import parse_checkpoint
from tidelog_node.log.producers.entries import ProducerEntry, read_marker
from tidelog_node.log.producers.snapshot_format import decode_snapshot
from tidelog_node.log.segments.transaction_index import aborted_fault, decode_aborted
from tidelog_node.tools.coordinator_records import RecordDecoder, decode_record
from tidelog_node.tools.findings import Finding, Note, Problem, Row, Value
from tidelog_node.tools.index_files import OffsetIndexFile, TimeIndexFile
from tidelog_node.tools.log_files import FileKind, LogFile
from tidelog_node.tools.segment_scan import ScannedBatch, SegmentScan

MAX_SEQUENCE = 2**31 - 1


class PayloadFormat(enum.StrEnum):
    """The format of shown bytes. ``auto`` is text if all of it is printable, otherwise hex."""

    AUTO = "auto"
    TEXT = "text"
    HEX = "hex"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The content to show. ``index_sanity_check`` and ``verify_index_only`` show only problems, no entries.

    ``decoder`` shows the keys and values of an internal topic's records instead of their bytes.
    """

    deep: bool = False
    print_data: bool = False
    key_format: PayloadFormat = PayloadFormat.AUTO
    value_format: PayloadFormat = PayloadFormat.AUTO
    decoder: RecordDecoder | None = None
    max_batches: int | None = None
    index_sanity_check: bool = False
    verify_index_only: bool = False


def dump(file: LogFile, options: DumpOptions) -> Iterator[Finding]:
    """Yield the content of a file in order.

    Raises:
        OSError: The file cannot be read.
    """
    match file.kind:
        case FileKind.SEGMENT:
            return _dump_segment(file, options)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            return _dump_index(file, options)
    return _dump_small(file)


def batch_fields(position: int, header: RecordBatchHeader, is_valid: bool) -> dict[str, Value]:
    """Return the fields of a batch with kafka-dump-log's names and order."""
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": _sequence(header, header.last_offset_delta),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": position,
        "timestampType": _timestamp_type(header),
        "timestamp": header.max_timestamp,
        "size": header.size_in_bytes,
        "magic": 2,
        "compresscodec": _codec(header),
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _dump_segment(file: LogFile, options: DumpOptions) -> Iterator[Finding]:
    with SegmentScan(file.path) as scan:
        for number, batch in enumerate(scan.batches()):
            if number == options.max_batches:
                return
            yield Row("batch", batch_fields(batch.position, batch.header, batch.is_valid))
            if not batch.is_valid:
                yield Problem(file.path, _crc_text(batch), batch.position)
            elif options.deep:
                yield from _dump_records(file, batch, options)
        if scan.fault:
            yield Problem(file.path, scan.fault, scan.end)
        if scan.preallocated:
            yield Note(file.path, f"{scan.preallocated} bytes of zeros behind byte {scan.end}: preallocated")


def _dump_records(file: LogFile, batch: ScannedBatch, options: DumpOptions) -> Iterator[Finding]:
    header = batch.header
    try:
        check_records(batch.data)
        marker = read_marker(batch.data) if header.is_control else None
    except TidelogError as error:
        yield Problem(file.path, f"batch at offset {header.base_offset}: {error.message}", batch.position)
        return
    for record in iter_records(batch.data):
        fields: dict[str, Value] = {
            "offset": record.offset,
            "timestampType": _timestamp_type(header),
            "timestamp": record.timestamp_ms,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": _sequence(header, record.offset - header.base_offset),
            "headerKeys": [name for name, _ in record.headers],
        }
        if marker is not None:
            fields["endTxnMarker"] = "COMMIT" if marker.is_commit else "ABORT"
            fields["coordinatorEpoch"] = marker.coordinator_epoch
        if options.print_data and not header.is_control:
            try:
                fields["key"], fields["payload"] = _contents(record, options)
            except ValueError as error:
                yield Problem(file.path, f"record at offset {record.offset}: {error}", batch.position)
        yield Row("record", fields)


def _contents(record: Record, options: DumpOptions) -> tuple[Value, Value]:
    if options.decoder is None:
        return shown(record.key, options.key_format), shown(record.value, options.value_format)
    return decode_record(options.decoder, record.offset, record.key, record.value)


def _dump_index(file: LogFile, options: DumpOptions) -> Iterator[Finding]:
    is_offsets = file.kind is FileKind.OFFSET_INDEX
    index = (OffsetIndexFile if is_offsets else TimeIndexFile)(file.path, file.base_offset)
    faults = index.sanity()
    if not options.index_sanity_check and not options.verify_index_only:
        for number in range(len(index)):
            fields: dict[str, Value] = dict(zip(index.names, index.entry(number), strict=True))
            yield Row("index entry" if is_offsets else "time index entry", fields)
    yield from faults
    if options.index_sanity_check:
        if not faults:
            yield Note(file.path, "passed the sanity check")
    elif not faults:
        yield from _check_index(index)


def _check_index(index: OffsetIndexFile | TimeIndexFile) -> Iterator[Finding]:
    segment = index.path.with_name(index.path.name.replace(index.path.suffixes[0], FileKind.SEGMENT.value))
    if not segment.exists():
        yield Problem(index.path, f"there is no {segment.name} beside it")
        return
    with SegmentScan(segment, check_crc=False) as scan:
        for batch in scan.batches():
            index.see(batch.position, batch.header)
    problems = index.finish()
    yield from problems
    if not problems:
        yield Note(index.path, f"entries: {len(index)}, all as {segment.name} has them")


def _dump_small(file: LogFile) -> Iterator[Finding]:
    data = file.path.read_bytes()
    try:
        yield from _SMALL[file.kind](file, data)
    except ValueError as cause:
        yield Problem(file.path, str(cause))


def _dump_aborted(file: LogFile, data: bytes) -> Iterator[Finding]:
    for entry in decode_aborted(data):
        fields: dict[str, Value] = {
            "version": 0,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        yield Row("aborted transaction", fields)
    fault = aborted_fault(data, file.base_offset)
    if fault:
        yield Problem(file.path, fault)


def _dump_snapshot(file: LogFile, data: bytes) -> Iterator[Finding]:
    for entry in decode_snapshot(data):
        yield Row("producer", _producer_fields(entry))


def _producer_fields(entry: ProducerEntry) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None,
        "lastTimestamp": entry.last_timestamp,
    }
    if entry.last_offset >= 0:
        fields["firstSequence"] = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
        fields["lastSequence"] = entry.last_sequence
        fields["lastOffset"] = entry.last_offset
        fields["offsetDelta"] = entry.offset_delta
        fields["timestamp"] = entry.last_timestamp
        fields["retainedBatches"] = len(entry.batches)
    return fields


def _dump_epochs(file: LogFile, data: bytes) -> Iterator[Finding]:
    entries = [(int(epoch), int(offset)) for epoch, offset in parse_checkpoint(data, fields=2)]
    for epoch, offset in entries:
        yield Row("leader epoch", {"epoch": epoch, "startOffset": offset})
    for earlier, later in pairwise(entries):
        if earlier[0] >= later[0] or earlier[1] >= later[1]:
            yield Problem(file.path, f"epoch {later[0]} from offset {later[1]} comes after {earlier}")


def _dump_offsets(file: LogFile, data: bytes) -> Iterator[Finding]:
    for topic, partition, offset in parse_checkpoint(data, fields=3):
        yield Row("offset", {"topic": topic, "partition": int(partition), "offset": int(offset)})
        if int(offset) < 0:
            yield Problem(file.path, f"the offset {offset} of {topic}-{partition} is negative")


def _dump_properties(file: LogFile, data: bytes) -> Iterator[Finding]:
    """Yield the ``name: value`` lines of ``partition.metadata`` or ``meta.properties``."""
    separator = ":" if file.kind is FileKind.PARTITION_METADATA else "="
    lines = [line.strip() for line in data.decode("latin-1").splitlines()]
    pairs = [line.partition(separator) for line in lines if line and not line.startswith("#")]
    fields: dict[str, Value] = {name.strip(): value.strip() for name, _, value in pairs}
    yield Row("properties", fields)
    needed = ("topic_id",) if file.kind is FileKind.PARTITION_METADATA else ("cluster.id", "node.id")
    for name in ("version", *needed):
        if not fields.get(name):
            yield Problem(file.path, f"{name} is missing")


def _dump_clean_shutdown(file: LogFile, data: bytes) -> Iterator[Finding]:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, found {data[:40]!r}")
    yield Row("clean shutdown", fields)


_SMALL: dict[FileKind, Callable[[LogFile, bytes], Iterator[Finding]]] = {
    FileKind.TRANSACTION_INDEX: _dump_aborted,
    FileKind.PRODUCER_SNAPSHOT: _dump_snapshot,
    FileKind.LEADER_EPOCHS: _dump_epochs,
    FileKind.PARTITION_METADATA: _dump_properties,
    FileKind.META_PROPERTIES: _dump_properties,
    FileKind.RECOVERY_POINTS: _dump_offsets,
    FileKind.HIGH_WATERMARKS: _dump_offsets,
    FileKind.LOG_START_OFFSETS: _dump_offsets,
    FileKind.CLEANER_OFFSETS: _dump_offsets,
    FileKind.CLEAN_SHUTDOWN: _dump_clean_shutdown,
}


def _sequence(header: RecordBatchHeader, delta: int) -> int:
    return header.base_sequence if header.base_sequence < 0 else (header.base_sequence + delta) & MAX_SEQUENCE


def _timestamp_type(header: RecordBatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _codec(header: RecordBatchHeader) -> str:
    try:
        return header.compression
    except TidelogError:
        return f"unknown({header.attributes & 7})"


def _crc_text(batch: ScannedBatch) -> str:
    records = batch.header.size_in_bytes - HEADER_SIZE
    return f"batch at offset {batch.header.base_offset}: the CRC does not fit the header and {records} bytes of records"


def shown(data: bytes | None, payload_format: PayloadFormat) -> str | None:
    """Return bytes as one line of text, or None for None. Invalid JSON is shown as with ``auto``."""
    if data is None:
        return None
    match payload_format:
        case PayloadFormat.TEXT:
            return data.decode(errors="backslashreplace")
        case PayloadFormat.HEX:
            return data.hex()
        case PayloadFormat.JSON:
            return _json(data)
        case PayloadFormat.AUTO:
            return _printable(data)


def _printable(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _json(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return _printable(data)
