"""`SetSchemaMetadata`: another name or version of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigDef, ConfigException, Importance, Type
from tidelog_connect.records import DATA_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import SchemaType
from tidelog_connect.transforms import structs
from tidelog_connect.transforms.settings import REPLACE_NULL, text_or_none, with_replace_null
from tidelog_connect.transforms.side import Subject

CONFIG = with_replace_null(
    ConfigDef()
    .define("schema.name", Type.STRING, None, Importance.HIGH, "The new name of the schema.")
    .define("schema.version", Type.INT, None, Importance.HIGH, "The new version of the schema.")
)


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata:
    """Changes the schema's metadata, and not the data, except for nulls that get the default of their field."""

    side: Side
    name: str | None
    version: int | None
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> SetSchemaMetadata:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: neither a name nor a version is given.
        """
        name, version = text_or_none(values["schema.name"]), values["schema.version"]
        if name is None and version is None:
            raise ConfigException("Neither schema name nor version configured")
        assert version is None or isinstance(version, int)
        return cls(side, name, version, bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with the metadata."""
        schema = records.schema(self.side)
        if schema is None:
            message = "Schema required for [updating schema metadata]"
            return records.changed({}, [Failure(sql.col(self.side).isNotNull(), DATA_EXCEPTION, message)])
        version = schema.version if self.version is None else self.version
        renamed = replace(schema, name=self.name or schema.name, version=version)
        if schema.type is not SchemaType.STRUCT:
            return records.changed({}, schemas={self.side: renamed})
        column = structs.struct(
            (each.name, structs.field(sql.col(self.side), each.name, each.schema, self.replace_null))
            for each in schema.fields
        )
        return Subject(records, self.side).changed(column, [], renamed)
