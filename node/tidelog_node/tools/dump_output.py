"""Output formats of ``tidelog log dump``: an aligned table, Kafka's lines, or JSON lines."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import typer

from tidelog_node.tools.findings import Note, Problem, Row, Value
from tidelog_node.tools.log_files import FileKind, LogFile

_OPTIONAL_LONGS = ("deleteHorizonMs", "currentTxnFirstOffset")
_NOT_KAFKAS = ("timestampType", "retainedBatches")
_MEASURED_ROWS = 256
_GAP = "  "

Write = Callable[[str], None]


class DumpFormat(enum.StrEnum):
    """The output formats. ``lines`` is the format of kafka-dump-log."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"


class DumpOutput(Protocol):
    """The output of files in turn, with each file's findings between ``begin`` and ``end``.

    Problems appear in place.
    """

    def begin(self, file: LogFile) -> None:
        """Begin a file."""

    def row(self, row: Row) -> None:
        """Show a row."""

    def remark(self, finding: Problem | Note) -> None:
        """Show a problem or note."""

    def end(self) -> None:
        """End the file."""


def dump_output(dump_format: DumpFormat, write: Write) -> DumpOutput:
    """Return the output of a format. ``write`` receives one line at a time."""
    match dump_format:
        case DumpFormat.TABLE:
            return _Table(write)
        case DumpFormat.LINES:
            return _Lines(write)
        case DumpFormat.JSON:
            return _JsonLines(write)


class _Lines:
    """kafka-dump-log's text, field by field. Problems go to stderr, as in Kafka."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def begin(self, file: LogFile) -> None:
        self._write(f"Dumping {file.path}")
        if file.kind is FileKind.SEGMENT:
            self._write(f"Log starting offset: {file.base_offset}")

    def row(self, row: Row) -> None:
        prefix = "| " if row.kind == "record" else ""
        self._write(prefix + " ".join(_kafka_fields(row.fields)))

    def remark(self, finding: Problem | Note) -> None:
        typer.echo(str(finding), err=True)

    def end(self) -> None:
        pass


class _JsonLines:
    """One object per finding, beginning with the file and the kind."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._path = ""

    def begin(self, file: LogFile) -> None:
        self._path = str(file.path)

    def row(self, row: Row) -> None:
        self._write(json.dumps({"file": self._path, "kind": row.kind, **row.fields}, ensure_ascii=False))

    def remark(self, finding: Problem | Note) -> None:
        self._write(json.dumps(remark_fields(finding), ensure_ascii=False))

    def end(self) -> None:
        pass


class _Table:
    """Columns as wide as the widest of the first cells. A wider later cell widens the following rows."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pending: list[Sequence[str] | str] = []
        self._widths: list[int] = []
        self._titles: Sequence[str] = ()
        self._is_empty = True

    def begin(self, file: LogFile) -> None:
        self._write(f"{file.path}")
        self._titles, self._widths, self._is_empty = (), [], True

    def row(self, row: Row) -> None:
        self._is_empty = False
        if row.kind == "record":
            self._add("    | " + _GAP.join(_record_cells(row.fields)))
            return
        cells = _batch_cells(row.fields) if row.kind == "batch" else _plain_cells(row.fields)
        if tuple(cells) != tuple(self._titles):
            self._flush()
            self._titles, self._widths = list(cells), []
            self._add(self._titles)
        self._add(list(cells.values()))

    def remark(self, finding: Problem | Note) -> None:
        self._is_empty = False
        word = "problem" if isinstance(finding, Problem) else "note"
        place = f"byte {finding.position}: " if isinstance(finding, Problem) and finding.position is not None else ""
        self._add(f"{word}: {place}{finding.text}")

    def end(self) -> None:
        self._flush()
        self._write("(empty)\n" if self._is_empty else "")

    def _add(self, line: Sequence[str] | str) -> None:
        self._pending.append(line)
        if len(self._pending) >= _MEASURED_ROWS:
            self._flush()

    def _flush(self) -> None:
        for line in self._pending:
            if not isinstance(line, str):
                known = self._widths or [0] * len(line)
                self._widths = [max(width, len(cell)) for width, cell in zip(known, line, strict=True)]
        for line in self._pending:
            self._write(line if isinstance(line, str) else self._aligned(line))
        self._pending.clear()

    def _aligned(self, cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if title in _LEFT else cell.rjust(width)
            for cell, width, title in zip(cells, self._widths, self._titles, strict=True)
        )
        return _GAP.join(padded).rstrip()


_LEFT = ("COMPRESSCODEC", "TIMESTAMP TYPE", "FLAGS", "TOPIC", "topic_id", "cluster.id", "directory.id")


def remark_fields(finding: Problem | Note) -> dict[str, Value]:
    """Return a problem or note as the fields of a JSON line."""
    if isinstance(finding, Note):
        return {"file": str(finding.path), "kind": "note", "text": finding.text}
    return {"file": str(finding.path), "kind": "problem", "position": finding.position, "text": finding.text}


def _kafka_fields(fields: dict[str, Value]) -> list[str]:
    parts = []
    for name, value in fields.items():
        if name in _NOT_KAFKAS:
            continue
        if name == "timestamp" and "timestampType" in fields:
            parts.append(f"{fields['timestampType']}: {value}")
        elif name in _OPTIONAL_LONGS:
            parts.append(f"{name}: {'OptionalLong.empty' if value is None else f'OptionalLong[{value}]'}")
        elif value is not None:
            parts.append(f"{name}: {_kafka_value(value)}")
    return parts


def _kafka_value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _batch_cells(fields: dict[str, Value]) -> dict[str, str]:
    horizon = fields["deleteHorizonMs"]
    flags = [
        "transactional" if fields["isTransactional"] else "",
        "control" if fields["isControl"] else "",
        "" if horizon is None else f"deleteHorizon={horizon}",
        "" if fields["isvalid"] else "INVALID",
    ]
    return {
        "POSITION": str(fields["position"]),
        "SIZE": str(fields["size"]),
        "BASE OFFSET": str(fields["baseOffset"]),
        "LAST OFFSET": str(fields["lastOffset"]),
        "COUNT": str(fields["count"]),
        "TIMESTAMP": str(fields["timestamp"]),
        "TIMESTAMP TYPE": str(fields["timestampType"]),
        "LEADER EPOCH": str(fields["partitionLeaderEpoch"]),
        "PRODUCER ID": _some(fields["producerId"]),
        "EPOCH": _some(fields["producerEpoch"]),
        "BASE SEQ": _some(fields["baseSequence"]),
        "LAST SEQ": _some(fields["lastSequence"]),
        "CRC": str(fields["crc"]),
        "COMPRESSCODEC": str(fields["compresscodec"]),
        "FLAGS": ",".join(filter(None, flags)),
    }


def _some(value: Value) -> str:
    return "-" if value == -1 else str(value)


def _plain_cells(fields: dict[str, Value]) -> dict[str, str]:
    return {_title(name): "-" if value is None else _kafka_value(value) for name, value in fields.items()}


def _title(name: str) -> str:
    """Return a field's name as a column title, for example ``LAST STABLE OFFSET`` for ``lastStableOffset``."""
    if "." in name or "_" in name:
        return name
    return "".join(f" {letter}" if letter.isupper() else letter.upper() for letter in name)


def _record_cells(fields: dict[str, Value]) -> list[str]:
    cells = [f"offset {fields['offset']}", f"{fields['timestampType']} {fields['timestamp']}"]
    if "endTxnMarker" in fields:
        return [*cells, f"{fields['endTxnMarker']} coordinatorEpoch {fields['coordinatorEpoch']}"]
    if "key" not in fields:
        cells += [f"keySize {fields['keySize']}", f"valueSize {fields['valueSize']}"]
    if fields["headerKeys"]:
        cells.append(f"headers {_kafka_value(fields['headerKeys'])}")
    if "key" in fields:
        cells += [f"key {_quoted(fields['key'])}", f"value {_quoted(fields['payload'])}"]
    return cells


def _quoted(value: Value) -> str:
    return "null" if value is None else _kafka_value(value)
