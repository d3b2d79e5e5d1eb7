"""`Protobuf`: messages that a descriptor file describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

from tidelog_foundation.limited_files import read_file
from tidelog_spark.descriptors import check_message
from tidelog_spark.formats.format import MAX_SCHEMA_BYTES, Mode, check_options


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Protobuf, by ``from_protobuf`` and ``to_protobuf`` of the package spark-protobuf.

    ``message`` is the name of a message that is not nested in another one, with or without its package. ``descriptor``
    is a FileDescriptorSet: its bytes, or the path of the file that
    ``protoc --include_imports --descriptor_set_out=FILE`` writes. By default, a malformed record is an error, as in
    Spark.
    """

    message: str
    descriptor: bytes | Path
    mode: Mode = "FAILFAST"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.mode, self.options)

    def decode(self, column: Column | str) -> Column:
        """Return the fields of a message.

        Raises:
            ConfigError: the descriptor cannot be read, or it has no such message.
        """
        options = {**self.options, "mode": self.mode}
        return from_protobuf(column, self.message, options=options, binaryDescriptorSet=self._descriptor())

    def encode(self, column: Column | str) -> Column:
        """Return the message of a struct.

        Raises:
            ConfigError: as `decode`.
        """
        return to_protobuf(column, self.message, options=dict(self.options), binaryDescriptorSet=self._descriptor())

    def _descriptor(self) -> bytes:
        data = _bytes_of(self.descriptor)
        source = "the descriptor" if isinstance(self.descriptor, bytes) else str(self.descriptor)
        check_message(source, data, self.message)
        return data


def _bytes_of(descriptor: bytes | Path) -> bytes:
    if isinstance(descriptor, bytes):
        return descriptor
    return read_file(descriptor, MAX_SCHEMA_BYTES, "the descriptor")
