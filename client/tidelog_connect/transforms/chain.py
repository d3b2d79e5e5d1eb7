"""`TransformChain`: a connector's transforms in order, each with its predicate."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column

from tidelog_connect.configuration import ConfigDef, ConfigException, Type, parse_value
from tidelog_connect.predicates.registry import PREDICATES, TOMBSTONE
from tidelog_connect.records import Records, Step
from tidelog_connect.transforms.registry import TRANSFORMS, Transform

STAGE = "TRANSFORMATION"
_STEP_SETTINGS = ("type", "predicate", "negate")


@dataclass(frozen=True, slots=True)
class TransformChain:
    """The transforms of a connector."""

    steps: Sequence[tuple[Step, Transform]]

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TransformChain:
        """Return the chain of a connector's settings: ``transforms``, ``predicates`` and those with their prefixes.

        Raises:
            ConfigException: a setting is missing, unknown or not valid.
        """
        predicates = _names(settings, "predicates")
        return cls([_step(settings, name, predicates) for name in _names(settings, "transforms")])

    def __call__(self, records: Records) -> Records:
        """Return the records after all transforms.

        Raises:
            ConfigException: a transform does not fit the records' schemas.
        """
        for step, transform in self.steps:
            records = transform(replace(records, step=step))
        return replace(records, step=None)


def _step(settings: Mapping[str, str], name: str, predicates: Sequence[str]) -> tuple[Step, Transform]:
    prefix = f"transforms.{name}."
    own = _with_prefix(settings, prefix)
    plugin = TRANSFORMS.find(_type(own, prefix))
    negate = parse_value(f"{prefix}negate", own.get("negate", "false"), Type.BOOLEAN) is True
    _check_known(plugin.config, own, prefix, _STEP_SETTINGS)
    transform = plugin.create(plugin.config.parse({key: own[key] for key in own if key not in _STEP_SETTINGS}))
    chosen = own.get("predicate", "")
    if not chosen:
        if negate:
            raise ConfigException(f"{prefix}negate is set, but {prefix}predicate is not")
        return Step(STAGE, plugin.class_name), transform
    if chosen not in predicates:
        known = ", ".join(predicates) or "none"
        raise ConfigException.of(f"{prefix}predicate", chosen, f"Predicate is not among those defined: {known}")
    applies, spares_tombstones = _condition(settings, chosen, negate)
    return Step(STAGE, plugin.class_name, applies, spares_tombstones), transform


def _condition(settings: Mapping[str, str], name: str, negate: bool) -> tuple[Column, bool]:
    """Return the condition of a predicate, and whether it is false for tombstones alone."""
    prefix = f"predicates.{name}."
    own = _with_prefix(settings, prefix)
    plugin = PREDICATES.find(_type(own, prefix))
    _check_known(plugin.config, own, prefix, ("type",))
    condition = plugin.create(plugin.config.parse({key: own[key] for key in own if key != "type"}))
    return (~condition, plugin.class_name == TOMBSTONE) if negate else (condition, False)


def _names(settings: Mapping[str, str], setting: str) -> list[str]:
    names = parse_value(setting, settings.get(setting, ""), Type.LIST)
    assert isinstance(names, list)
    if len({*names}) < len(names):
        raise ConfigException.of(setting, names, "Duplicate alias provided.")
    return names


def _with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def _type(settings: Mapping[str, str], prefix: str) -> str:
    if "type" not in settings:
        raise ConfigException(f'Missing required configuration "{prefix}type" which has no default value.')
    return settings["type"]


def _check_known(config: ConfigDef, settings: Mapping[str, str], prefix: str, others: Sequence[str]) -> None:
    known = [*config.keys, *others]
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise ConfigException.of(f"{prefix}{name}", value, f"Unknown setting{hint}")
