"""The converters by the names of their classes, and their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
from tidelog_connect.plugins import Plugin, Plugins
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


def _number(name: str, schema_type: SchemaType) -> Plugin[Converter]:
    return Plugin(f"{_KAFKA}converters.{name}", ConfigDef(), lambda _: NumberConverter(schema_type))


CONVERTERS: Plugins[Converter] = Plugins(
    (
        Plugin(f"{_KAFKA}json.JsonConverter", _JSON_CONFIG, _json),
        Plugin(f"{_KAFKA}storage.StringConverter", _STRING_CONFIG, lambda _: StringConverter()),
        Plugin(f"{_KAFKA}converters.ByteArrayConverter", ConfigDef(), lambda _: ByteArrayConverter()),
        _number("BooleanConverter", SchemaType.BOOLEAN),
        _number("DoubleConverter", SchemaType.FLOAT64),
        _number("FloatConverter", SchemaType.FLOAT32),
        _number("IntegerConverter", SchemaType.INT32),
        _number("LongConverter", SchemaType.INT64),
        _number("ShortConverter", SchemaType.INT16),
        Plugin("io.tidelog.connect.avro.AvroConverter", _AVRO_CONFIG, _avro),
    ),
    "converter",
    "Converter",
)
"""The converters by the names of their classes."""

HEADER_CONVERTERS = (
    f"{_KAFKA}converters.ByteArrayConverter",
    f"{_KAFKA}storage.SimpleHeaderConverter",
    f"{_KAFKA}storage.StringConverter",
)
"""The converters of headers, whose values are bytes for all steps: these leave them as they are."""


def create_converter(name: str, settings: Mapping[str, str]) -> tuple[str, Converter]:
    """Return the name of a converter's class, and the converter of its settings, which are without their prefix.

    Raises:
        ConfigException: there is no such converter, or a setting is unknown or not valid.
    """
    plugin = CONVERTERS.find(name)
    for key, value in settings.items():
        if key not in plugin.config.keys:
            raise ConfigException.of(key, value, f"Unknown setting of {plugin.alias}")
    return plugin.class_name, plugin.create(plugin.config.parse(settings))
