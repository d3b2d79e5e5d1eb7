"""`Registered`: records that name their schema by an id, as the serializers of schema registries write them.

Such a record is a zero byte, the id in four bytes, big endian, and the encoded fields. Protobuf's have the position of
the message in its file before the fields. The ids must be known when a query starts, because each Spark expression has
one schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql.functions import col, concat, conv, length, lit, raise_error, substring, when
from pyspark.sql.functions import hex as hex_of

from tidelog_foundation.errors import ConfigError
from tidelog_spark.formats.avro import Avro
from tidelog_spark.formats.format import Format
from tidelog_spark.formats.json import Json
from tidelog_spark.formats.protobuf import Protobuf

MAX_SCHEMAS = 100
"""Each schema is a branch of the query's expression, which Spark analyzes and compiles."""

MAX_SCHEMA_ID = 2**31 - 1

_MAGIC = b"\x00"
_HEADER_BYTES = 5
_TO_THE_END = 2**31 - 1


class RegisteredSchema(Protocol):
    """A schema in a registry."""

    @property
    def schema_str(self) -> str | None:
        """The text of the schema."""
        ...


class SchemaRegistry(Protocol):
    """Schemas by id. `tidelog.schema_registry.SchemaRegistryClient` is one."""

    def get_schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id, or raise an error."""
        ...


@dataclass(frozen=True, slots=True)
class Registered:
    """A format whose records name the schema that they are written with by its id.

    Avro needs that schema to decode a record: ``schemas`` is a dict of texts by id, or a registry, with the ``ids`` to
    look up. Records are read by the format's ``reader_schema``, or else its ``schema``. JSON and Protobuf decode
    records of any id by their own schema. ``write_id`` is the id in encoded records; their schema is the format's.

    A record without such a header, or with an id that is not known, is malformed: null with the mode PERMISSIVE, and an
    error with FAILFAST, which names the header.
    """

    format: Avro | Json | Protobuf
    schemas: Mapping[int, str] | SchemaRegistry | None = None
    ids: Sequence[int] = ()
    write_id: int | None = None
    message_index: Sequence[int] = (0,)
    """Protobuf: the position of the message in its file, then the position of each message nested in it."""

    def __post_init__(self) -> None:
        _checked(self.ids)
        _checked([] if self.write_id is None else [self.write_id])
        if not self.message_index or min(self.message_index) < 0:
            raise ConfigError(f"message_index {tuple(self.message_index)} is not a list of positions, such as (0,)")

    def decode(self, column: Column | str) -> Column:
        """Return the fields of a column of records.

        Raises:
            ConfigError: the format is Avro and a schema is missing, or there are too many.
        """
        decoders, index = self._decoders(), self._index()
        record = col(column) if isinstance(column, str) else column
        payload = substring(record, 1 + _HEADER_BYTES + len(index), _TO_THE_END)
        decoded = self._malformed(record)
        for prefix, decoder in decoders:
            matches = (substring(record, 1, len(prefix)) == lit(prefix)) & (length(record) >= _HEADER_BYTES)
            if index:
                matches &= substring(record, 1 + _HEADER_BYTES, len(index)) == lit(index)
            decoded = when(matches, decoder.decode(payload)).otherwise(decoded)
        return when(record.isNotNull(), decoded)

    def encode(self, column: Column | str) -> Column:
        """Return records with ``write_id``.

        Raises:
            ConfigError: ``write_id`` is not set.
        """
        if self.write_id is None:
            raise ConfigError("encoding needs write_id, the id of the schema in the registry")
        return concat(lit(record_header(self.write_id) + self._index()), self.format.encode(column))

    def _decoders(self) -> list[tuple[bytes, Format]]:
        """Return the decoder of the records that begin with some bytes."""
        if not isinstance(self.format, Avro):
            return [(_MAGIC, self.format)]
        reader = self.format.schema if self.format.reader_schema is None else self.format.reader_schema
        return [
            (record_header(id_), replace(self.format, schema=schema, reader_schema=reader))
            for id_, schema in self._written_schemas().items()
        ]

    def _written_schemas(self) -> dict[int, str]:
        if self.schemas is None:
            raise ConfigError("Avro needs the schemas that records are written with: pass schemas")
        if isinstance(self.schemas, Mapping):
            known = dict(self.schemas)
            missing = [id_ for id_ in self.ids if id_ not in known]
            if missing:
                raise ConfigError(f"schemas has no schema {missing[0]}; it has {', '.join(map(str, known)) or 'none'}")
            return {id_: known[id_] for id_ in _checked(self.ids or list(known))}
        if not self.ids:
            raise ConfigError("a registry needs ids, the schemas that the query can read")
        return {id_: _text_in(self.schemas, id_) for id_ in self.ids}

    def _malformed(self, record: Column) -> Column:
        if self.format.mode == "PERMISSIVE":
            return lit(None)
        known = ", ".join(map(str, self._written_schemas())) if isinstance(self.format, Avro) else "any"
        header = hex_of(substring(record, 1, _HEADER_BYTES + len(self._index())))
        return raise_error(concat(lit("The record begins with 0x"), header, lit(f"; known schema ids: {known}")))

    def _index(self) -> bytes:
        return message_position(self.message_index) if isinstance(self.format, Protobuf) else b""


def schema_id(column: Column | str) -> Column:
    """Return the schema id of each record, or null for one without the header of a registry's serializers."""
    record = col(column) if isinstance(column, str) else column
    has_header = (substring(record, 1, 1) == lit(_MAGIC)) & (length(record) >= _HEADER_BYTES)
    return when(has_header, conv(hex_of(substring(record, 2, 4)), 16, 10).cast("bigint"))


def record_header(schema_id: int) -> bytes:
    """Return the bytes before a record that name its schema."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def message_position(index: Sequence[int]) -> bytes:
    """Return the position of a message as the serializers write it: zigzag varints, and one zero byte for (0,)."""
    return b"\0" if tuple(index) == (0,) else b"".join(_varint(2 * number) for number in (len(index), *index))


def _checked(ids: Sequence[int]) -> Sequence[int]:
    if len(ids) > MAX_SCHEMAS:
        raise ConfigError(f"{len(ids)} schemas are more than {MAX_SCHEMAS}; name the ids to read")
    for id_ in ids:
        if not 0 <= id_ <= MAX_SCHEMA_ID:
            raise ConfigError(f"schema id {id_} is not within 0 and {MAX_SCHEMA_ID}")
    return ids


def _text_in(registry: SchemaRegistry, id_: int) -> str:
    text = registry.get_schema(id_).schema_str
    if text is None:
        raise ConfigError(f"the registry has no text for schema {id_}")
    return text


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
