"""The rows of a sink that writes the fields of values as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def rows_with_values(rows: DataFrame, policy: str) -> DataFrame:
    """Return the rows with values. By ``behavior.on.null.values``, a row without one is left out, or ends the batch."""
    from pyspark.sql import functions as sql

    if policy == "ignore":
        return rows.where(sql.col("value").isNotNull())
    place = sql.concat_ws("-", "topic", "partition", "offset")
    message = sql.concat(sql.lit("The record "), place, sql.lit(" has no value, and behavior.on.null.values=fail"))
    return rows.where(sql.when(sql.col("value").isNull(), sql.raise_error(message).cast("boolean")).otherwise(True))


def value_columns(rows: DataFrame) -> list[Column]:
    """Return the columns of values: the fields of a struct, or the value itself."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    value, kind = sql.col("value"), rows.schema["value"].dataType
    if isinstance(kind, types.StructType):
        return [value.getField(name).alias(name) for name in kind.names]
    return [value.alias("value")]
