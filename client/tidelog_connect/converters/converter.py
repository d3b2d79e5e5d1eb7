"""The interface of all converters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column

from tidelog_connect.records import Failure
from tidelog_connect.schemas import ConnectSchema


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted column: after decoding data with a schema, or a VARIANT without; after encoding BINARY."""

    column: Column
    schema: ConnectSchema | None
    failures: Sequence[Failure] = ()


class Converter(Protocol):
    """A conversion between the bytes of a topic and data. A schema is known before the first record.

    A converter whose schemas are in a registry gets them when the connector's query is planned: `decode` is called
    once per plan.
    """

    def decode(self, column: Column) -> Converted:
        """Return the data of a column of bytes; null stays null."""
        ...

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return the bytes of data; null becomes null.

        Raises:
            ConfigException: the converter cannot write data of this schema.
        """
        ...
