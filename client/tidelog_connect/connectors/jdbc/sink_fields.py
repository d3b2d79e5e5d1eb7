"""The columns that a sink writes: parts of keys and values, and the place of a record in its topic (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc.sink_settings import KAFKA, KAFKA_FIELDS, NONE, RECORD_KEY, SinkSettings
from tidelog_connect.connectors.jdbc.types import TargetType, target_type
from tidelog_connect.schemas import ConnectSchema, SchemaType


class Origin(Enum):
    """The part of a record that a column has."""

    TOPIC = auto()
    PARTITION = auto()
    OFFSET = auto()
    KEY = auto()
    KEY_FIELD = auto()
    VALUE_FIELD = auto()


@dataclass(frozen=True, slots=True)
class SinkField:
    """One column: its name, its origin, the schema of its values, and its column among the staged rows."""

    name: str
    origin: Origin
    schema: ConnectSchema
    is_key: bool
    staged: str

    @property
    def type(self) -> TargetType:
        """The types of the column.

        Raises:
            ConfigException: no column holds such values.
        """
        return target_type(self.name, self.schema)


_KAFKA = (
    (Origin.TOPIC, ConnectSchema(SchemaType.STRING)),
    (Origin.PARTITION, ConnectSchema(SchemaType.INT32)),
    (Origin.OFFSET, ConnectSchema(SchemaType.INT64)),
)


def sink_fields(settings: SinkSettings, key: ConnectSchema | None, value: ConnectSchema | None) -> list[SinkField]:
    """Return the columns of a batch, those of the primary key first.

    ``value`` is None where no record of the batch has a value.

    Raises:
        ConfigException: the schemas lack what the settings name, or have types that tables lack.
    """
    if value is not None and value.type is not SchemaType.STRUCT:
        raise ConfigException(f"The sink writes structs, but values are of the type {value.type.value}")
    of_key = [] if settings.pk_mode == NONE else _key_fields(settings, key, value)
    names = [name for name, _, _ in of_key]
    found = [
        (each.name, Origin.VALUE_FIELD, each.schema)
        for each in (value.fields if value is not None else ())
        if each.name not in names and (not settings.whitelist or each.name in settings.whitelist)
    ]
    _check_names("fields.whitelist", settings.whitelist, value)
    fields = [
        SinkField(name, origin, schema, number < len(of_key), f"f{number}")
        for number, (name, origin, schema) in enumerate([*of_key, *found])
    ]
    if not fields:
        raise ConfigException("The records have no fields that the sink could write")
    for field in fields:
        assert field.type
    return fields


def _key_fields(
    settings: SinkSettings, key: ConnectSchema | None, value: ConnectSchema | None
) -> list[tuple[str, Origin, ConnectSchema]]:
    if settings.pk_mode == KAFKA:
        names: Sequence[str] = settings.pk_fields or KAFKA_FIELDS
        return [(name, origin, schema) for name, (origin, schema) in zip(names, _KAFKA, strict=True)]
    if settings.pk_mode != RECORD_KEY:
        _check_names("pk.fields", settings.pk_fields, value)
        return _of_struct(settings.pk_fields, value, Origin.VALUE_FIELD)
    if key is None:
        raise ConfigException(
            "pk.mode=record_key needs keys with a schema, but the records have none: see key.converter"
        )
    if key.type is SchemaType.STRUCT:
        _check_names("pk.fields", settings.pk_fields, key)
        return _of_struct(settings.pk_fields, key, Origin.KEY_FIELD)
    if len(settings.pk_fields) != 1:
        raise ConfigException.of(
            "pk.fields",
            ",".join(settings.pk_fields),
            f"Keys are of the type {key.type.value}, so it must have the one name of their column",
        )
    return [(settings.pk_fields[0], Origin.KEY, key.as_optional(False))]


def _of_struct(
    names: Sequence[str], schema: ConnectSchema | None, origin: Origin
) -> list[tuple[str, Origin, ConnectSchema]]:
    if schema is None:
        return []
    chosen = names or [each.name for each in schema.fields]
    return [(each.name, origin, each.schema) for name in chosen for each in schema.fields if each.name == name]


def _check_names(setting: str, names: Sequence[str], schema: ConnectSchema | None) -> None:
    known = [] if schema is None else [each.name for each in schema.fields]
    missing = [name for name in names if name not in known]
    if missing and schema is not None:
        raise ConfigException.of(
            setting, ",".join(names), f"Records have no field {missing[0]}, but {', '.join(known)}"
        )
