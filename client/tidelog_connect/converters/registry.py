"""The converters by the names of their classes, and their settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigException,
    Importance,
    Type,
    ValidString,
)
from tidelog_connect.converters.avro import AvroConverter
from tidelog_connect.converters.converter import Converter
from tidelog_connect.converters.json import JsonConverter
from tidelog_connect.converters.scalars import ByteArrayConverter, NumberConverter, StringConverter
from tidelog_connect.schemas import SchemaType, connect_schema_of_avro, schema_from_json
from tidelog_connect.transforms.settings import text, text_or_none

_KAFKA = "org.apache.kafka.connect."

_JSON_CONFIG = (
    ConfigDef()
    .define("schemas.enable", Type.BOOLEAN, True, Importance.HIGH, "Whether every record has its schema and a payload.")
    .define(
        "schema.content",
        Type.STRING,
        None,
        Importance.HIGH,
        "The schema of all records, in JSON. Records then have the payload alone (KIP-1054).",
    )
    .define("schemas.cache.size", Type.INT, 1000, Importance.HIGH, "Without effect: a connector has one schema.")
    .define(
        "decimal.format",
        Type.STRING,
        "BASE64",
        Importance.LOW,
        "The form of decimals: BASE64 or NUMERIC.",
        validator=CaseInsensitiveValidString(["BASE64", "NUMERIC"]),
    )
    .define(
        "replace.null.with.default",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        "Whether a field that is null and has a default gets the default.",
    )
)
_STRING_CONFIG = ConfigDef().define(
    "converter.encoding",
    Type.STRING,
    "UTF-8",
    Importance.HIGH,
    "The character set: UTF-8.",
    validator=ValidString(["UTF-8", "UTF8", "utf-8", "utf8"]),
)
_AVRO_CONFIG = ConfigDef().define(
    "schema.content", Type.STRING, NO_DEFAULT_VALUE, Importance.HIGH, "The Avro schema of all records, in JSON."
)


@dataclass(frozen=True, slots=True)
class ConverterPlugin:
    """A converter: the name of its class, its settings, and the converter of parsed settings."""

    class_name: str
    config: ConfigDef
    create: Callable[[Mapping[str, object]], Converter]

    @property
    def alias(self) -> str:
        """The name without its package."""
        return self.class_name.rpartition(".")[2]


def _json(values: Mapping[str, object]) -> Converter:
    schema = text_or_none(values["schema.content"])
    if schema is not None:
        schema_from_json(_parsed("schema.content", schema))
    return JsonConverter(
        in_records=bool(values["schemas.enable"]) and schema is None,
        schema=schema,
        decimals_as_numbers=text(values["decimal.format"]).upper() == "NUMERIC",
        replace_null=bool(values["replace.null.with.default"]),
    )


def _avro(values: Mapping[str, object]) -> Converter:
    schema = text(values["schema.content"])
    connect_schema_of_avro(_parsed("schema.content", schema))
    return AvroConverter(schema)


def _parsed(name: str, schema: str) -> object:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ConfigException.of(name, schema[:200], f"Not JSON: {error}") from None


def _number(name: str, schema_type: SchemaType) -> ConverterPlugin:
    return ConverterPlugin(f"{_KAFKA}converters.{name}", ConfigDef(), lambda _: NumberConverter(schema_type))


CONVERTERS: Mapping[str, ConverterPlugin] = MappingProxyType(
    {
        plugin.class_name: plugin
        for plugin in (
            ConverterPlugin(f"{_KAFKA}json.JsonConverter", _JSON_CONFIG, _json),
            ConverterPlugin(f"{_KAFKA}storage.StringConverter", _STRING_CONFIG, lambda _: StringConverter()),
            ConverterPlugin(f"{_KAFKA}converters.ByteArrayConverter", ConfigDef(), lambda _: ByteArrayConverter()),
            _number("BooleanConverter", SchemaType.BOOLEAN),
            _number("DoubleConverter", SchemaType.FLOAT64),
            _number("FloatConverter", SchemaType.FLOAT32),
            _number("IntegerConverter", SchemaType.INT32),
            _number("LongConverter", SchemaType.INT64),
            _number("ShortConverter", SchemaType.INT16),
            ConverterPlugin("io.tidelog.connect.avro.AvroConverter", _AVRO_CONFIG, _avro),
        )
    }
)
"""The converters by the names of their classes."""

_ALIASES = MappingProxyType({plugin.alias: plugin for plugin in CONVERTERS.values()})


def converter_plugin(name: str) -> ConverterPlugin:
    """Return a converter by the name of its class, in full or without the package.

    Raises:
        ConfigException: there is no such converter.
    """
    plugin = CONVERTERS.get(name) or _ALIASES.get(name)
    if plugin is None:
        raise ConfigException.of("converter", name, f"Class {name} could not be found.")
    return plugin


def create_converter(name: str, settings: Mapping[str, str]) -> tuple[str, Converter]:
    """Return the name of a converter's class, and the converter of its settings, which are without their prefix.

    Raises:
        ConfigException: there is no such converter, or a setting is unknown or not valid.
    """
    plugin = converter_plugin(name)
    for key, value in settings.items():
        if key not in plugin.config.keys:
            raise ConfigException.of(key, value, f"Unknown setting of {plugin.alias}")
    return plugin.class_name, plugin.create(plugin.config.parse(settings))
