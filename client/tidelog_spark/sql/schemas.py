"""Reads the files of schemas that a CREATE statement names: a definition has their contents. Blocking."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_file, read_text
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
            made[AVRO_SCHEMA] = read_text(schema, MAX_SCHEMA_BYTES)
        except ConfigError as error:
            raise SqlError(f"{place}: {AVRO_SCHEMA}: {error.message}") from error
    descriptor = options.get(PROTOBUF_DESCRIPTOR)
    if descriptor is not None:
        try:
            content = read_file(descriptor, MAX_SCHEMA_BYTES)
        except ConfigError as error:
            raise SqlError(f"{place}: {PROTOBUF_DESCRIPTOR}: {error.message}") from error
        made[PROTOBUF_DESCRIPTOR] = base64.b64encode(content).decode()
    return made
