"""Reads the files of schemas that a CREATE statement names: a definition has their contents. Blocking."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from tidelog_spark.sql.definitions import AVRO_SCHEMA, PROTOBUF_DESCRIPTOR
from tidelog_spark.sql.errors import SqlError

MAX_SCHEMA_BYTES = 500_000
"""A schema fits a definition, also as base64."""
_JSON_STARTS = ("{", "[", '"')


def with_schemas(place: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options in which schemas are no files: Avro's is JSON, and the descriptor of Protobuf is base64.

    Raises:
        SqlError: a file cannot be read, or is too large.
    """
    made = dict(options)
    schema = options.get(AVRO_SCHEMA)
    if schema is not None and not schema.lstrip().startswith(_JSON_STARTS):
        try:
            made[AVRO_SCHEMA] = _content(f"{place}: {AVRO_SCHEMA}", schema).decode()
        except UnicodeDecodeError as error:
            raise SqlError(f"{place}: {AVRO_SCHEMA}: {schema} is not UTF-8") from error
    descriptor = options.get(PROTOBUF_DESCRIPTOR)
    if descriptor is not None:
        made[PROTOBUF_DESCRIPTOR] = base64.b64encode(_content(f"{place}: {PROTOBUF_DESCRIPTOR}", descriptor)).decode()
    return made


def _content(place: str, name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            content = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise SqlError(f"{place}: cannot read {name[:100]!r}: {error.strerror}") from error
    if len(content) > MAX_SCHEMA_BYTES:
        raise SqlError(f"{place}: {name} has more than {MAX_SCHEMA_BYTES} bytes")
    return content
