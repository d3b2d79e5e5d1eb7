"""`ConfigDef`: the settings of a connector, task, transform, predicate or converter, as Kafka's class of this name.

`ConfigDef.parse` returns values or raises the first error. `ConfigDef.validate` returns the value and all errors of
each setting, which ``PUT /connector-plugins/{name}/config/validate`` reports. The messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from tidelog_connect.configuration.validators import Validator
from tidelog_connect.configuration.values import ConfigException, Type, parse_value, setting_text


class NoDefault:
    """The type of `NO_DEFAULT_VALUE`."""

    def __repr__(self) -> str:
        return "NO_DEFAULT_VALUE"


NO_DEFAULT_VALUE = NoDefault()
"""The default of a required setting. A default of None is a default."""


class Importance(StrEnum):
    """The importance of a setting."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """The width of a setting's value in a form."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Recommender(Protocol):
    """The values that a setting may have, given the others, and whether a form shows it."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> Sequence[object]:
        """Return the recommended values."""
        ...

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        """Tell whether the setting has an effect, given the other settings."""
        ...


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The definition of one setting. ``default`` is parsed already."""

    name: str
    type: Type
    default: object
    importance: Importance
    documentation: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: Sequence[str] = ()
    recommender: Recommender | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "display_name", self.display_name or self.name)
        if self.has_default and self.validator is not None:
            self.validator(self.name, self.default)

    @property
    def has_default(self) -> bool:
        """Whether the setting is optional."""
        return not isinstance(self.default, NoDefault)

    def as_json(self) -> dict[str, object]:
        """Return the definition as ``GET /connector-plugins/{name}/config`` has it."""
        return {
            "name": self.name,
            "type": self.type.value,
            "required": not self.has_default,
            "default_value": setting_text(self.default) if self.has_default else None,
            "importance": self.importance.value,
            "documentation": self.documentation,
            "group": self.group,
            "width": self.width.value,
            "display_name": self.display_name,
            "dependents": list(self.dependents),
            "order": self.order,
        }


@dataclass(slots=True)
class ConfigValue:
    """The outcome of one setting's validation: its parsed value, and the errors."""

    name: str
    value: object = None
    recommended_values: Sequence[object] = ()
    errors: list[str] = field(default_factory=list)
    visible: bool = True

    def as_json(self) -> dict[str, object]:
        """Return the outcome as ``PUT /connector-plugins/{name}/config/validate`` has it."""
        return {
            "name": self.name,
            "value": setting_text(self.value),
            "recommended_values": [setting_text(value) for value in self.recommended_values],
            "errors": list(self.errors),
            "visible": self.visible,
        }


class ConfigDef:
    """Definitions of settings, in the order of their definition."""

    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        self._keys: dict[str, ConfigKey] = {}
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The definitions by the settings' names."""
        return self._keys

    @property
    def groups(self) -> list[str]:
        """The groups, in the order of their first setting."""
        return list(dict.fromkeys(key.group for key in self if key.group is not None))

    def add(self, key: ConfigKey) -> ConfigDef:
        """Add a definition, and return this object.

        Raises:
            ConfigException: the setting is defined already.
        """
        if key.name in self._keys:
            raise ConfigException(f"Configuration {key.name} is defined twice.")
        self._keys[key.name] = key
        return self

    def define(
        self,
        name: str,
        type: Type,
        default: object,
        importance: Importance,
        documentation: str,
        *,
        validator: Validator | None = None,
        group: str | None = None,
        order: int = -1,
        width: Width = Width.NONE,
        display_name: str = "",
        dependents: Sequence[str] = (),
        recommender: Recommender | None = None,
    ) -> ConfigDef:
        """Define a setting, and return this object. A default that is text is parsed.

        Raises:
            ConfigException: the setting is defined already, or its default is not valid.
        """
        parsed = parse_value(name, default, type) if isinstance(default, str) else default
        key = ConfigKey(name, type, parsed, importance, documentation, validator, group, order, width, display_name)
        return self.add(replace(key, dependents=tuple(dependents), recommender=recommender))

    def embed(self, prefix: str, group_prefix: str, starting_order: int, child: ConfigDef) -> None:
        """Add the settings of another definition under a prefix, such as ``transforms.route.``.

        The validators of embedded settings see names without the prefix, and so do their messages, as in Kafka.
        """
        for order, key in enumerate(child.sorted_keys(), starting_order):
            self.add(
                replace(
                    key,
                    name=prefix + key.name,
                    validator=None if key.validator is None else _Embedded(prefix, key.validator),
                    group=group_prefix if not key.group else f"{group_prefix}: {key.group}",
                    order=order,
                    display_name=key.display_name,
                    dependents=tuple(prefix + name for name in key.dependents),
                    recommender=None if key.recommender is None else _EmbeddedRecommender(prefix, key.recommender),
                )
            )

    def sorted_keys(self) -> list[ConfigKey]:
        """Return the definitions by group, order in the group, required ones first, importance, and name."""
        groups = {group: number for number, group in enumerate(self.groups)}
        importance = list(Importance)

        def rank(key: ConfigKey) -> tuple[int, int, bool, int, str]:
            group = -1 if key.group is None else groups[key.group]
            return group, key.order, key.has_default, importance.index(key.importance), key.name

        return sorted(self, key=rank)

    def parse(self, settings: Mapping[str, str | None]) -> dict[str, object]:
        """Return the value of every defined setting. Other settings are left alone.

        Raises:
            ConfigException: a value is not valid, or a required setting is missing.
        """
        undefined = self._undefined_dependents()
        if undefined:
            names = ",".join(undefined)
            raise ConfigException(f"Some configurations in are referred in the dependents, but not defined: {names}")
        values: dict[str, object] = {}
        for key in self:
            values[key.name] = _given_value(key, settings)
            if key.validator is not None:
                key.validator(key.name, values[key.name])
        return values

    def validate(self, settings: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Return the value and the errors of every defined setting, by its name."""
        outcomes = {name: ConfigValue(name) for name in self._keys}
        for name in self._undefined_dependents():
            error = f"{name} is referred in the dependents, but not defined."
            outcomes[name] = ConfigValue(name, errors=[error], visible=False)
        for key in self:
            _validate_value(key, settings, outcomes[key.name])
        parsed = {name: outcome.value for name, outcome in outcomes.items()}
        for key in self:
            if key.recommender is not None:
                _recommend(key.name, key.recommender, parsed, outcomes[key.name])
        return outcomes

    def _undefined_dependents(self) -> list[str]:
        named = dict.fromkeys(name for key in self for name in key.dependents)
        return [name for name in named if name not in self._keys]


@dataclass(frozen=True, slots=True)
class _Embedded:
    prefix: str
    validator: Validator

    def __call__(self, name: str, value: object) -> None:
        self.validator(name.removeprefix(self.prefix), value)


@dataclass(frozen=True, slots=True)
class _EmbeddedRecommender:
    prefix: str
    recommender: Recommender

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> Sequence[object]:
        return self.recommender.valid_values(name.removeprefix(self.prefix), self._own(parsed))

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return self.recommender.visible(name.removeprefix(self.prefix), self._own(parsed))

    def _own(self, parsed: Mapping[str, object]) -> dict[str, object]:
        return {name.removeprefix(self.prefix): value for name, value in parsed.items() if name.startswith(self.prefix)}


def _given_value(key: ConfigKey, settings: Mapping[str, str | None]) -> object:
    """Return the parsed setting, or its default."""
    if key.name in settings:
        return parse_value(key.name, settings[key.name], key.type)
    if not key.has_default:
        raise ConfigException(f'Missing required configuration "{key.name}" which has no default value.')
    return key.default


def _validate_value(key: ConfigKey, settings: Mapping[str, str | None], outcome: ConfigValue) -> None:
    try:
        outcome.value = _given_value(key, settings)
    except ConfigException as error:
        outcome.errors.append(error.message)
    if key.validator is not None:
        try:
            key.validator(key.name, outcome.value)
        except ConfigException as error:
            outcome.errors.append(error.message)


def _recommend(name: str, recommender: Recommender, parsed: Mapping[str, object], outcome: ConfigValue) -> None:
    try:
        outcome.recommended_values = list(recommender.valid_values(name, parsed))
        outcome.visible = recommender.visible(name, parsed)
    except ConfigException as error:
        outcome.errors.append(error.message)
