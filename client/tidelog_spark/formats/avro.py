"""`Avro`: single Avro records, without the header of Avro files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql.avro.functions import from_avro, to_avro

from tidelog_foundation.errors import ConfigError
from tidelog_spark.formats.format import Mode, check_options, text_of


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro, by ``from_avro`` and ``to_avro`` of the package spark-avro.

    Schemas are JSON text or the path of a file. ``schema`` is the one that the records are written with. To read them
    by another, compatible schema, pass it as ``reader_schema``. By default, a malformed record is an error, as in
    Spark.
    """

    schema: str | Path
    reader_schema: str | Path | None = None
    mode: Mode = "FAILFAST"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.mode, self.options)

    def decode(self, column: Column | str) -> Column:
        """Return the value of an Avro record.

        Raises:
            ConfigError: a schema is not JSON, or its file cannot be read.
        """
        options = {**self.options, "mode": self.mode}
        if self.reader_schema is not None:
            options["avroSchema"] = _schema_text(self.reader_schema)
        return from_avro(column, _schema_text(self.schema), options)

    def encode(self, column: Column | str) -> Column:
        """Return the Avro record of a value, in ``schema``.

        Raises:
            ConfigError: as `decode`.
        """
        return to_avro(column, _schema_text(self.schema))


def _schema_text(schema: str | Path) -> str:
    text = text_of(schema)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        hint = "" if isinstance(schema, Path) else "; pass the path of a file as pathlib.Path"
        raise ConfigError(f"the Avro schema {str(schema)[:100]!r} is not JSON: {error}{hint}") from error
    return text
