"""`Subject`: the key or the value that a transform operates on, with the checks that Kafka's ``Requirements`` makes."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.records import DATA_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import ConnectSchema, SchemaType
from tidelog_connect.transforms import structs, variants


@dataclass(frozen=True, slots=True)
class Subject:
    """The keys or the values of records."""

    records: Records
    side: Side

    @property
    def schema(self) -> ConnectSchema | None:
        """The schema, or None."""
        return self.records.schema(self.side)

    @property
    def column(self) -> Column:
        """The keys or values, null where they are null."""
        return sql.col(self.side)

    def failures(self, purpose: str, *, allows_null: bool) -> list[Failure]:
        """Return the failures of data that is no struct, or without a schema no object."""
        null = self.column.isNull()
        if self.schema is None:
            wrong = ~variants.is_object(self.column)
            start = f"Only Map objects supported in absence of schema for [{purpose}], found: "
            message = sql.concat(sql.lit(start), variants.class_name(self.column))
            return [Failure(~null & wrong if allows_null else wrong, DATA_EXCEPTION, message)]
        if self.schema.type is SchemaType.STRUCT:
            message = sql.lit(f"Only Struct objects supported for [{purpose}], found: null")
            return [] if allows_null else [Failure(null, DATA_EXCEPTION, message)]
        found = sql.when(null, "null").otherwise(structs.class_name(self.schema))
        message = sql.concat(sql.lit(f"Only Struct objects supported for [{purpose}], found: "), found)
        return [Failure(~null if allows_null else sql.lit(True), DATA_EXCEPTION, message)]

    def changed(self, column: Column, failures: list[Failure], schema: ConnectSchema | None) -> Records:
        """Return the records with other keys or values; null stays null."""
        present = sql.when(self.column.isNotNull(), column)
        return self.records.changed({self.side: present}, failures, {self.side: schema})

    def failed(self, failures: list[Failure]) -> Records:
        """Return the records unchanged, but for failures: for data whose schema makes the step impossible."""
        return self.records.changed({}, failures)
