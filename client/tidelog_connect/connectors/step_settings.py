"""Settings of the steps that a connector names: its converters, transforms and predicates.

Source: ConnectorConfig.enrich and AbstractHerder.validateConverterConfig of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    Composite,
    ConfigDef,
    ConfigException,
    Importance,
    KnownClass,
    NonNull,
    Type,
    Width,
    parse_value,
)
from tidelog_connect.converters import CONVERTERS, HEADER_CONVERTERS, NamedConverter, create_converter
from tidelog_connect.pipeline import Pipeline
from tidelog_connect.plugins import Plugins
from tidelog_connect.predicates import PREDICATES
from tidelog_connect.transforms.chain import TransformChain
from tidelog_connect.transforms.registry import TRANSFORMS

COMMON = "Common"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CONVERTERS = ("key.converter", "value.converter")
_HEADER_NAMES = frozenset((*HEADER_CONVERTERS, *(name.rpartition(".")[2] for name in HEADER_CONVERTERS)))
_TRANSFORMS, _PREDICATES = "transforms", "predicates"


def define_steps(found: ConfigDef) -> None:
    """Define the settings that name converters, transforms and predicates."""
    for order, (name, text) in enumerate((("key", "keys"), ("value", "values")), 5):
        found.define(
            f"{name}.converter",
            Type.CLASS,
            None,
            Importance.LOW,
            f"The class of the converter between {text} and the bytes of topics; without it, that of the worker.",
            validator=KnownClass(CONVERTERS.names),
            group=COMMON,
            order=order,
            width=Width.SHORT,
            display_name=f"{name.capitalize()} converter class",
        )
    found.define(
        "header.converter",
        Type.CLASS,
        None,
        Importance.LOW,
        "The class of the converter of headers, whose values stay bytes; without it, that of the worker.",
        validator=KnownClass(_HEADER_NAMES),
        group=COMMON,
        order=7,
        width=Width.SHORT,
        display_name="Header converter class",
    )
    for order, (name, text) in enumerate(
        ((_TRANSFORMS, "the transforms of records, in order"), (_PREDICATES, "the predicates of transforms")), 8
    ):
        found.define(
            name,
            Type.LIST,
            "",
            Importance.LOW,
            f"The names of {text}.",
            validator=Composite((NonNull(), _UniqueAliases())),
            group=name.capitalize(),
            order=order,
            width=Width.LONG,
            display_name=name.capitalize(),
        )


def settings_of_steps(config: Mapping[str, str | None]) -> ConfigDef:
    """Return the settings of the converters, transforms and predicates that a configuration names."""
    found = ConfigDef()
    predicates = _aliases(config, _PREDICATES)
    for alias in dict.fromkeys(_aliases(config, _TRANSFORMS)):
        implicit = _implicit_settings(predicates)
        _define_step(found, config, _TRANSFORMS, "Transformation", alias, TRANSFORMS, implicit)
    for alias in dict.fromkeys(predicates):
        _define_step(found, config, _PREDICATES, "Predicate", alias, PREDICATES, ConfigDef())
    for name in _CONVERTERS:
        plugin = config.get(name)
        if plugin in CONVERTERS.names:
            found.embed(f"{name}.", COMMON, 20, CONVERTERS.find(str(plugin)).config)
    return found


def pipeline_of(config: Mapping[str, str], worker: Mapping[str, str]) -> Pipeline:
    """Return the steps of a connector. A converter that it does not name is the worker's, with the worker's settings.

    Raises:
        ConfigException: a setting is not valid.
    """
    key, value = (converter_of(config if name in config else worker, name) for name in _CONVERTERS)
    return Pipeline(key, value, TransformChain.of(config))


def converter_of(config: Mapping[str, str], name: str) -> NamedConverter:
    """Return the converter that a setting names.

    Raises:
        ConfigException: there is no such converter, or one of its settings is not valid.
    """
    return create_converter(config.get(name, STRING_CONVERTER), _with_prefix(config, f"{name}."))


def check_worker_converters(config: Mapping[str, str]) -> None:
    """Check the converters of a worker.

    Raises:
        ConfigException: there is no such converter, or one of its settings is unknown or not valid.
    """
    for name in _CONVERTERS:
        converter_of(config, name)
    KnownClass(_HEADER_NAMES)("header.converter", config.get("header.converter"))


def _implicit_settings(predicates: Collection[str]) -> ConfigDef:
    """Return the settings that all transforms have (KIP-585)."""
    return (
        ConfigDef()
        .define(
            "predicate",
            Type.STRING,
            "",
            Importance.MEDIUM,
            "The name of the predicate that decides whether the transform applies to a record.",
            validator=_KnownPredicate(predicates),
        )
        .define("negate", Type.BOOLEAN, False, Importance.MEDIUM, "Whether the predicate is negated.")
    )


def _define_step(
    found: ConfigDef,
    config: Mapping[str, str | None],
    setting: str,
    kind: str,
    alias: str,
    plugins: Plugins[Any],
    implicit: ConfigDef,
) -> None:
    prefix, group = f"{setting}.{alias}.", f"{setting.capitalize()}: {alias}"
    found.define(
        f"{prefix}type",
        Type.CLASS,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        f"Class for the '{alias}' {kind.lower()}.",
        validator=_StepType(plugins, kind, config, prefix),
        group=group,
        order=0,
        width=Width.LONG,
        display_name=f"{kind} type for {alias}",
        recommender=_Classes(plugins),
    )
    name = config.get(f"{prefix}type")
    if name in plugins.names:
        own = ConfigDef([*implicit, *plugins.find(str(name)).config])
        found.embed(prefix, group, 1, own)


def _aliases(config: Mapping[str, str | None], setting: str) -> Sequence[str]:
    parsed = parse_value(setting, config.get(setting) or "", Type.LIST)
    assert isinstance(parsed, list)
    return parsed


def _with_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class _UniqueAliases:
    def __call__(self, name: str, value: object) -> None:
        assert isinstance(value, list)
        if len({*value}) < len(value):
            raise ConfigException.of(name, value, "Duplicate alias provided.")


@dataclass(frozen=True, slots=True)
class _KnownPredicate:
    aliases: Collection[str]

    def __call__(self, name: str, value: object) -> None:
        if value and value not in self.aliases:
            known = ", ".join(self.aliases) or "none"
            raise ConfigException.of(name, value, f"Predicate is not among those defined: {known}")


@dataclass(frozen=True, slots=True)
class _StepType:
    plugins: Plugins[Any]
    kind: str
    config: Mapping[str, str | None]
    prefix: str

    def __call__(self, name: str, value: object) -> None:
        negate, predicate = f"{self.prefix}negate", f"{self.prefix}predicate"
        if negate in self.config and predicate not in self.config:
            raise ConfigException(
                f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be "
                "negated."
            )
        if value is None:
            raise ConfigException.of(name, value, f"Not a {self.kind}")
        KnownClass(self.plugins.names)(name, value)


@dataclass(frozen=True, slots=True)
class _Classes:
    plugins: Plugins[Any]

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        return list(self.plugins)

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return True
