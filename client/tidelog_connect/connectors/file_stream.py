"""FileStreamSource and FileStreamSink: lines of one file, as the connectors of this name in Kafka."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
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
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_FILE, _TOPIC, _BATCH_SIZE = "file", "topic", "batch.size"
_FILENAME, _POSITION = "filename", "position"
_MAX_BYTES = 64 * 1024**2
"""A batch has at most this many bytes; a longer line is an error."""
_MARKER = ".tidelog-batch"
_LINES = ".tidelog-lines"
_PIECE_BYTES = 1024**2


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
        if not len(lines):
            return None
        topic = self.settings[_TOPIC]
        offsets = (SourceOffset(partition, {_POSITION: end}),)
        value = sql.make_valid_utf8(sql.col("value").cast("string"))
        rows = spark.createDataFrame(pyarrow.table({"value": lines})).select(
            sql.lit(topic).alias("topic"), value.alias("value")
        )
        return SourceBatch(rows, offsets, frozenset((topic,)), value_schema=ConnectSchema(SchemaType.STRING))


class FileStreamSinkConnector(SinkConnector):
    """Appends the values of records to a file, one in a line, as Java prints them.

    The id of the last batch and the file's length before it stand in a small file beside it, so that a batch
    which comes again replaces what a crash has left of it.
    """

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
    reads = ("value",)

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
        from pyspark.sql import functions as sql

        from tidelog_connect.transforms.printing import printed

        path = Path(self.settings[_FILE])
        value = sql.coalesce(printed(rows["value"], batch.value_schema), sql.lit("null")).alias("value")
        lines = _staged(rows.select(value), path) if _tasks_see_files(rows) else _collected(rows.select(value))
        append_batch(path, f"{batch.query}/{batch.number}", lines)


def _tasks_see_files(rows: DataFrame) -> bool:
    from tidelog_spark.local_session import is_local

    return is_local(rows.sparkSession.sparkContext.master or "")


def _staged(values: DataFrame, path: Path) -> Iterator[bytes]:
    """Yield the lines of values in pieces. The tasks, which run on this machine, write them to a folder first."""
    folder = path.with_name(path.name + _LINES)
    values.write.mode("overwrite").text(str(folder.absolute()))
    for part in sorted(folder.glob("part-*")):
        with part.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    shutil.rmtree(folder)


def _collected(values: DataFrame) -> Iterator[bytes]:
    """Yield the lines of values in pieces. Spark limits their size (``spark.driver.maxResultSize``)."""
    for chunk in values.toArrow()["value"].chunks:
        yield "".join(f"{value}\n" for value in chunk.to_pylist()).encode()


def read_lines(path: Path, start: int, max_lines: int) -> tuple[pyarrow.BinaryArray, int]:
    """Return the complete lines behind a position without their line ends, and the position behind them.

    Raises:
        ValueError: the file is shorter than the position, or a line is longer than a batch.
    """
    import pyarrow
    from pyarrow import compute

    none = pyarrow.array([], pyarrow.binary())
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return none, start
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
        return none, start
    lines = compute.split_pattern(pyarrow.array([data[: end - 1]]), "\n").values
    if len(lines) > max_lines:
        lines = lines[:max_lines]
        end = compute.sum(compute.binary_length(lines)).as_py() + max_lines
    if b"\r" in data:
        lines = compute.if_else(compute.ends_with(lines, "\r"), compute.binary_slice(lines, 0, -1), lines)
    return lines, start + end


def append_batch(path: Path, batch_id: str, pieces: Iterable[bytes]) -> None:
    """Append the lines of a batch, and replace those of the same batch if it was written before, whole or in part."""
    marker = path.with_name(path.name + _MARKER)
    length = path.stat().st_size if path.exists() else 0
    known = json.loads(marker.read_text()) if marker.exists() else None
    if known is not None and known["batch"] == batch_id:
        length = known["length"]
    else:
        replace_file(marker, json.dumps({"batch": batch_id, "length": length}).encode())
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(length)
        file.seek(length)
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
