"""`InsertField`: attributes of the record, or a fixed text, as fields of the key or value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigDef, ConfigException, Importance, Type
from tidelog_connect.records import DATA_EXCEPTION, SCHEMA_BUILDER_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import TIMESTAMP, ConnectSchema, Field, SchemaType
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.settings import REPLACE_NULL, text_or_none, with_replace_null
from tidelog_connect.transforms.side import Subject

_PURPOSE = "field insertion"
_SOURCE_RECORD = "org.apache.kafka.connect.source.SourceRecord"
_OPTIONAL = "The suffix ! makes the field required, ? optional, which is the default."
_ATTRIBUTES = MappingProxyType({"topic.field": "topic", "partition.field": "partition", "offset.field": "offset"})
_SCHEMAS = MappingProxyType(
    {
        "topic.field": ConnectSchema(SchemaType.STRING),
        "partition.field": ConnectSchema(SchemaType.INT32),
        "offset.field": ConnectSchema(SchemaType.INT64),
        "timestamp.field": ConnectSchema(SchemaType.INT64, name=TIMESTAMP, version=1),
        "static.field": ConnectSchema(SchemaType.STRING),
    }
)

CONFIG = with_replace_null(
    ConfigDef()
    .define("topic.field", Type.STRING, None, Importance.MEDIUM, f"Field for the topic. {_OPTIONAL}")
    .define("partition.field", Type.STRING, None, Importance.MEDIUM, f"Field for the partition. {_OPTIONAL}")
    .define("offset.field", Type.STRING, None, Importance.MEDIUM, f"Field for the offset, in sinks only. {_OPTIONAL}")
    .define("timestamp.field", Type.STRING, None, Importance.MEDIUM, f"Field for the timestamp. {_OPTIONAL}")
    .define("static.field", Type.STRING, None, Importance.MEDIUM, f"Field for a fixed text. {_OPTIONAL}")
    .define("static.value", Type.STRING, None, Importance.MEDIUM, "The fixed text.")
)


@dataclass(frozen=True, slots=True)
class InsertField:
    """Inserts fields, in the order of the settings."""

    side: Side
    inserted: Mapping[str, tuple[str, bool]]
    static_value: str | None
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> InsertField:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: no field is inserted, or the fixed text is missing.
        """
        named = {setting: name for setting in _SCHEMAS if (name := text_or_none(values[setting])) is not None}
        if not named:
            raise ConfigException("No field insertion configured")
        static = text_or_none(values["static.value"])
        if "static.field" in named and static is None:
            message = f"No value specified for static field: {named['static.field']}"
            raise ConfigException.of("static.value", None, message)
        inserted = {
            setting: (name[:-1] if name.endswith(("!", "?")) else name, not name.endswith("!"))
            for setting, name in named.items()
        }
        return cls(side, inserted, static, bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with the fields."""
        subject = Subject(records, self.side)
        failures = subject.failures(_PURPOSE, allows_null=True)
        present = subject.column.isNotNull()
        if "offset.field" in self.inserted and not records.is_sink:
            message = f"Only SinkRecord supported for [{_PURPOSE}], found: {_SOURCE_RECORD}"
            failures.append(Failure(present, DATA_EXCEPTION, message))
        schema = subject.schema
        if schema is None:
            return subject.changed(self._object(subject.column), failures, None)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        names = [field.name for field in schema.fields] + [name for name, _ in self.inserted.values()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            message = f"Cannot create field because of field name duplication {twice}"
            return subject.failed([*failures, Failure(present, SCHEMA_BUILDER_EXCEPTION, message)])
        return subject.changed(self._struct(subject.column, schema), failures, self._schema(schema))

    def _schema(self, schema: ConnectSchema) -> ConnectSchema:
        new = [Field(name, _SCHEMAS[setting].as_optional(optional)) for setting, (name, optional) in self._items()]
        return schema.with_fields((*schema.fields, *new))

    def _struct(self, value: Column, schema: ConnectSchema) -> Column:
        old = [(each.name, structs.field(value, each.name, each.schema, self.replace_null)) for each in schema.fields]
        new = [(name, self._attribute(setting, is_typed=True)) for setting, (name, _) in self._items()]
        return structs.struct([*old, *new])

    def _object(self, value: Column) -> Column:
        found = variants.fields(value)
        for setting, (name, _) in self._items():
            attribute = self._attribute(setting, is_typed=False)
            with_field = variants.put(found, name, attribute)
            skips_null = setting in ("partition.field", "timestamp.field")
            found = sql.when(attribute.isNotNull(), with_field).otherwise(found) if skips_null else with_field
        return variants.from_fields(found)

    def _attribute(self, setting: str, *, is_typed: bool) -> Column:
        if setting == "static.field":
            return sql.lit(self.static_value)
        if setting == "timestamp.field":
            return sql.timestamp_millis(sql.col("timestamp")) if is_typed else sql.col("timestamp")
        return sql.col(_ATTRIBUTES[setting])

    def _items(self) -> list[tuple[str, tuple[str, bool]]]:
        return [(setting, self.inserted[setting]) for setting in _SCHEMAS if setting in self.inserted]
