"""The transforms by the names of Kafka's classes, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.plugins import Plugin, Plugins
from tidelog_connect.records import Records
from tidelog_connect.transforms import (
    cast,
    extraction,
    filter,
    flatten,
    headers,
    insert_field,
    mask_field,
    replace_field,
    routers,
    schema_metadata,
    timestamp_converter,
)

PACKAGE = "org.apache.kafka.connect.transforms."

Transform: TypeAlias = Callable[[Records], Records]
"""A step that changes records."""


def _sided(name: str, config: ConfigDef, create: Callable[..., Transform]) -> list[Plugin[Transform]]:
    """Return a transform's two plugins: for keys and for values."""
    return [
        Plugin(f"{PACKAGE}{name}$Key", config, partial(create, "key")),
        Plugin(f"{PACKAGE}{name}$Value", config, partial(create, "value")),
    ]


def _drop(values: Mapping[str, object]) -> Transform:
    return filter.drop


TRANSFORMS: Plugins[Transform] = Plugins(
    (
        *_sided("Cast", cast.CONFIG, cast.Cast.of),
        Plugin(f"{PACKAGE}DropHeaders", headers.DROP_CONFIG, headers.DropHeaders.of),
        *_sided("ExtractField", extraction.EXTRACT_CONFIG, extraction.ExtractField.of),
        Plugin(f"{PACKAGE}Filter", filter.CONFIG, _drop),
        *_sided("Flatten", flatten.CONFIG, flatten.Flatten.of),
        *_sided("HeaderFrom", headers.FROM_CONFIG, headers.HeaderFrom.of),
        *_sided("HoistField", extraction.HOIST_CONFIG, extraction.HoistField.of),
        *_sided("InsertField", insert_field.CONFIG, insert_field.InsertField.of),
        Plugin(f"{PACKAGE}InsertHeader", headers.INSERT_CONFIG, headers.InsertHeader.of),
        *_sided("MaskField", mask_field.CONFIG, mask_field.MaskField.of),
        Plugin(f"{PACKAGE}RegexRouter", routers.REGEX_CONFIG, routers.RegexRouter.of),
        *_sided("ReplaceField", replace_field.CONFIG, replace_field.ReplaceField.of),
        *_sided("SetSchemaMetadata", schema_metadata.CONFIG, schema_metadata.SetSchemaMetadata.of),
        *_sided("TimestampConverter", timestamp_converter.CONFIG, timestamp_converter.TimestampConverter.of),
        Plugin(f"{PACKAGE}TimestampRouter", routers.TIMESTAMP_CONFIG, routers.TimestampRouter.of),
        Plugin(f"{PACKAGE}ValueToKey", extraction.VALUE_TO_KEY_CONFIG, extraction.ValueToKey.of),
    ),
    "type",
    "Transformation",
)
"""The transforms by the names of Kafka's classes."""
