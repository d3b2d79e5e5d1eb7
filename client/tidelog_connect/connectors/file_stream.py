"""FileStreamSource and FileStreamSink: lines of one file, as the connectors of this name in Kafka."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import NO_DEFAULT_VALUE, ConfigDef, Importance, NonEmptyString, Range, Type
from tidelog_connect.connectors.connector import (
    Batch,
    Settings,
    SinkConnector,
    SourceBatch,
    SourceConnector,
    SourceOffset,
)
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.schemas import ConnectSchema, SchemaType
from tidelog_foundation.replaced_files import replace_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _TOPIC, _BATCH_SIZE = "file", "topic", "batch.size"
_FILENAME, _POSITION = "filename", "position"
_MAX_BYTES = 64 * 1024**2
"""A batch has at most this many bytes; a longer line is an error."""
_STAGED = ".tidelog-batch"


class FileStreamSourceConnector(SourceConnector):
    """Reads the lines that are appended to a file. Its offset is the position behind the last line, in bytes.

    The last line counts once its line feed is there. The file may not exist yet. A file that is shorter than the
    position fails the connector.
    """

    class_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    task_class = "org.apache.kafka.connect.file.FileStreamSourceTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the source."""
        return (
            ConfigDef()
            .define(
                _FILE,
                Type.STRING,
                NO_DEFAULT_VALUE,
                Importance.HIGH,
                "The file to read, on the machine of the worker that leads.",
                validator=NonEmptyString(),
            )
            .define(
                _TOPIC,
                Type.STRING,
                NO_DEFAULT_VALUE,
                Importance.HIGH,
                "The topic to write.",
                validator=NonEmptyString(),
            )
            .define(
                _BATCH_SIZE,
                Type.INT,
                "500000",
                Importance.LOW,
                "The maximum number of lines in a batch.",
                validator=Range(1, 10_000_000),
            )
        )

    @classmethod
    def tasks(cls, settings: Settings) -> int:
        """Return 1: a file is read by one task."""
        return 1

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check that the partition names a file, and that the offset is a position.

        Raises:
            ValueError: they do not.
        """
        if set(partition) != {_FILENAME} or not isinstance(partition[_FILENAME], str):
            raise ValueError(f"Partition objects should contain the single key '{_FILENAME}', a text")
        if offset is None:
            return
        position = offset.get(_POSITION)
        if set(offset) != {_POSITION} or isinstance(position, bool) or not isinstance(position, int) or position < 0:
            raise ValueError(f"The value for the '{_POSITION}' key in the offset should be a non-negative whole number")

    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the lines behind a position."""
        import pyarrow
        from pyspark.sql import functions as sql

        partition = {_FILENAME: self.settings[_FILE]}
        start = int(position.get(partition_key(partition), {_POSITION: 0})[_POSITION])
        lines, end = read_lines(Path(self.settings[_FILE]), start, self.settings[_BATCH_SIZE])
        if not lines:
            return None
        topic = self.settings[_TOPIC]
        values = pyarrow.array(lines, pyarrow.binary())
        count = len(lines)
        table = pyarrow.table(
            {
                "topic": pyarrow.repeat(pyarrow.scalar(topic), count),
                "value": values,
            }
        )
        offsets = (SourceOffset(partition, {_POSITION: end}),)
        rows = spark.createDataFrame(table).withColumn("value", sql.make_valid_utf8(sql.col("value").cast("string")))
        return SourceBatch(rows, offsets, frozenset((topic,)), value_schema=ConnectSchema(SchemaType.STRING))


class FileStreamSinkConnector(SinkConnector):
    """Appends the values of records to a file, one in a line, as Java prints them.

    The id of the last batch and the file's length before it stand in a small file beside it, so that a batch
    which comes again replaces what a crash has left of it.
    """

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the sink."""
        return ConfigDef().define(
            _FILE,
            Type.STRING,
            NO_DEFAULT_VALUE,
            Importance.HIGH,
            "The file to append to, on the machine of the worker that leads.",
            validator=NonEmptyString(),
        )

    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Append the values of a batch, those of each partition in their order."""
        from tidelog_connect.transforms.printing import printed

        value = printed(rows["value"], batch.value_schema).cast("binary").alias("value")
        table = rows.select("topic", "partition", "offset", value).toArrow()
        ordered = table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
        append_batch(Path(self.settings[_FILE]), f"{batch.query}/{batch.number}", ordered["value"].to_pylist())


def read_lines(path: Path, start: int, max_lines: int) -> tuple[list[bytes], int]:
    """Return the complete lines behind a position without their line ends, and the position behind them.

    Raises:
        ValueError: the file is shorter than the position, or a line is longer than a batch.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return [], start
    with file:
        size = os.fstat(file.fileno()).st_size
        if size < start:
            raise ValueError(
                f"{path} has {size} bytes, but the position is {start}: the file was truncated or replaced"
            )
        file.seek(start)
        data = file.read(_MAX_BYTES)
    end = data.rfind(b"\n") + 1
    if not end:
        if len(data) == _MAX_BYTES:
            raise ValueError(f"{path} has a line of more than {_MAX_BYTES} bytes at position {start}")
        return [], start
    lines = data[: end - 1].split(b"\n")
    if len(lines) > max_lines:
        lines = lines[:max_lines]
        end = sum(map(len, lines)) + max_lines
    return [line.removesuffix(b"\r") for line in lines], start + end


def append_batch(path: Path, batch_id: str, values: list[bytes | None]) -> None:
    """Append values as lines, and replace those of the same batch if it was written before, whole or in part."""
    marker = path.with_name(path.name + _STAGED)
    length = path.stat().st_size if path.exists() else 0
    known = json.loads(marker.read_text()) if marker.exists() else None
    if known is not None and known["batch"] == batch_id:
        length = known["length"]
    else:
        replace_file(marker, json.dumps({"batch": batch_id, "length": length}).encode())
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(length)
        file.seek(length)
        file.write(b"".join(b"null\n" if value is None else value + b"\n" for value in values))
        file.flush()
        os.fsync(file.fileno())
