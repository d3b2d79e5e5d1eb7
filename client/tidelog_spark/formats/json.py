"""`Json`: text with the fields of a declared schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql.functions import col, from_json, to_json
from pyspark.sql.types import StructType

from tidelog_spark.formats.format import Mode, check_options, text_of


@dataclass(frozen=True, slots=True)
class Json:
    """JSON, by Spark's ``from_json`` and ``to_json``.

    The schema is Spark's: text such as ``"carrier STRING, delay INT"``, the JSON of a StructType, the StructType
    itself, or the path of a file with one of the texts. ``options`` are those of Spark's JSON files. By default, a
    malformed record gives nulls, as in Spark.
    """

    schema: str | Path | StructType
    mode: Mode = "PERMISSIVE"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.mode, self.options)

    def decode(self, column: Column | str) -> Column:
        """Return the fields of JSON text in UTF-8.

        Raises:
            ConfigError: the schema's file cannot be read.
        """
        schema = self.schema if isinstance(self.schema, StructType) else text_of(self.schema).strip()
        return from_json(_column(column).cast("string"), schema, {**self.options, "mode": self.mode})

    def encode(self, column: Column | str) -> Column:
        """Return the JSON text of a struct, map or array. Spark leaves out fields that are null."""
        return to_json(column, dict(self.options)).cast("binary")


def _column(column: Column | str) -> Column:
    return col(column) if isinstance(column, str) else column
