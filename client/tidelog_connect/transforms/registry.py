"""The transforms by the names of Kafka's classes, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from tidelog_connect.configuration import ConfigDef, ConfigException
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

_Factory: TypeAlias = Callable[[Mapping[str, object]], Transform]


@dataclass(frozen=True, slots=True)
class TransformPlugin:
    """A transform: the name of Kafka's class, its settings, and the step of parsed settings."""

    class_name: str
    config: ConfigDef
    create: _Factory

    @property
    def alias(self) -> str:
        """The name without its package."""
        return self.class_name.removeprefix(PACKAGE)


def _sided(name: str, config: ConfigDef, create: Callable[..., Transform]) -> list[TransformPlugin]:
    """Return a transform's two plugins: for keys and for values."""
    return [
        TransformPlugin(f"{PACKAGE}{name}$Key", config, partial(create, "key")),
        TransformPlugin(f"{PACKAGE}{name}$Value", config, partial(create, "value")),
    ]


def _drop(values: Mapping[str, object]) -> Transform:
    return filter.drop


TRANSFORMS: Mapping[str, TransformPlugin] = MappingProxyType(
    {
        plugin.class_name: plugin
        for plugin in (
            *_sided("Cast", cast.CONFIG, cast.Cast.of),
            TransformPlugin(f"{PACKAGE}DropHeaders", headers.DROP_CONFIG, headers.DropHeaders.of),
            *_sided("ExtractField", extraction.EXTRACT_CONFIG, extraction.ExtractField.of),
            TransformPlugin(f"{PACKAGE}Filter", filter.CONFIG, _drop),
            *_sided("Flatten", flatten.CONFIG, flatten.Flatten.of),
            *_sided("HeaderFrom", headers.FROM_CONFIG, headers.HeaderFrom.of),
            *_sided("HoistField", extraction.HOIST_CONFIG, extraction.HoistField.of),
            *_sided("InsertField", insert_field.CONFIG, insert_field.InsertField.of),
            TransformPlugin(f"{PACKAGE}InsertHeader", headers.INSERT_CONFIG, headers.InsertHeader.of),
            *_sided("MaskField", mask_field.CONFIG, mask_field.MaskField.of),
            TransformPlugin(f"{PACKAGE}RegexRouter", routers.REGEX_CONFIG, routers.RegexRouter.of),
            *_sided("ReplaceField", replace_field.CONFIG, replace_field.ReplaceField.of),
            *_sided("SetSchemaMetadata", schema_metadata.CONFIG, schema_metadata.SetSchemaMetadata.of),
            *_sided("TimestampConverter", timestamp_converter.CONFIG, timestamp_converter.TimestampConverter.of),
            TransformPlugin(f"{PACKAGE}TimestampRouter", routers.TIMESTAMP_CONFIG, routers.TimestampRouter.of),
            TransformPlugin(f"{PACKAGE}ValueToKey", extraction.VALUE_TO_KEY_CONFIG, extraction.ValueToKey.of),
        )
    }
)
"""The transforms by the names of Kafka's classes."""


def transform_plugin(name: str) -> TransformPlugin:
    """Return a transform by the name of its class, in full or without the package.

    Raises:
        ConfigException: there is no such transform.
    """
    plugin = TRANSFORMS.get(name) or TRANSFORMS.get(PACKAGE + name)
    if plugin is None:
        raise ConfigException.of("type", name, f"Class {name} could not be found.")
    return plugin
