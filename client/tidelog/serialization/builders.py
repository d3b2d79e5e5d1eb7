"""Serializers and deserializers that a client builds from its settings and owns (confluent-kafka's builders)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.serialization.primitives import Deserializer, Serializer
from tidelog_foundation.errors import ConfigError

CLUSTER_ID_TIMEOUT_S = 60.0
"""The time that a serializer waits for the cluster's id."""


class SerializerBuilder:
    """The base class of builders that create a client's serializer from its settings."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return the serializer of keys or values, and the remaining settings for the client."""
        raise NotImplementedError


class DeserializerBuilder:
    """The base class of builders that create a client's deserializer from its settings."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return the deserializer of keys or values, and the remaining settings for the client."""
        raise NotImplementedError


@dataclass(slots=True)
class Serdes:
    """A client's serializers or deserializers. It closes only those that it has built."""

    key: Callable[..., Any] | None = None
    value: Callable[..., Any] | None = None
    owned: list[Any] = field(default_factory=list)

    def resolve_cluster_id(self, resolver: Callable[[], Any], setter: str = "set_cluster_id_resolver") -> None:
        """Pass ``resolver``, which returns the cluster's id, to the serdes that accept one."""
        for serde in (self.key, self.value):
            set_resolver = getattr(serde, setter, None)
            if callable(set_resolver):
                set_resolver(resolver)

    def close(self) -> None:
        """Close all built serdes even if some fail, then raise the first error."""
        owned, self.owned = self.owned, []
        first: Exception | None = None
        for close in _closers(owned, "close"):
            try:
                close()
            except Exception as error:  # noqa: BLE001 whatever the application's serializers raise
                first = first or error
        if first is not None:
            raise first

    async def close_awaited(self) -> None:
        """Close all built serdes, and await ``aclose()`` if a serde has it."""
        owned, self.owned = self.owned, []
        for serde in owned:
            for close in _closers([serde], "aclose", "close")[:1]:
                outcome = close()
                if hasattr(outcome, "__await__"):
                    await outcome


def pop_builders(settings: dict[str, Any], kind: str) -> tuple[Serdes, dict[str, Any]]:
    """Remove ``key.<kind>``, ``value.<kind>`` and their builders from the settings; return the builders by part.

    Raises:
        ConfigError: a serde is given together with its builder, or is not callable.
    """
    serdes, builders = Serdes(), {}
    for part in ("key", "value"):
        serde = settings.pop(f"{part}.{kind}", None)
        builder = settings.pop(f"{part}.{kind}.builder", None)
        if serde is not None and builder is not None:
            raise ConfigError(f'give "{part}.{kind}" or "{part}.{kind}.builder", not both')
        if serde is not None and not callable(serde):
            text = f"must be callable, not {type(serde).__name__}"
            raise ConfigError(f'invalid value for configuration "{part}.{kind}": {text}')
        setattr(serdes, part, serde)
        if builder is not None:
            builders[part] = builder
    return serdes, builders


def build_serdes(settings: dict[str, Any], kind: str) -> tuple[Serdes, dict[str, Any]]:
    """Build a client's serdes; return them and the settings for the client.

    Every builder gets all settings; the client gets those that no builder has removed.

    Raises:
        ConfigError: see :func:`pop_builders`, or a builder did not return a pair.
    """
    rest = dict(settings)
    serdes, builders = pop_builders(rest, kind)
    left = rest
    try:
        for part, builder in builders.items():
            left = take_built(serdes, part, builder.build(dict(rest), part == "key"), left)
    except BaseException:
        serdes.close()
        raise
    return serdes, left


async def build_serdes_awaited(settings: dict[str, Any], kind: str) -> tuple[Serdes, dict[str, Any]]:
    """Build serdes as :func:`build_serdes`, for builders whose ``build()`` may be a coroutine function."""
    rest = dict(settings)
    serdes, builders = pop_builders(rest, kind)
    left = rest
    try:
        for part, builder in builders.items():
            built = builder.build(dict(rest), part == "key")
            left = take_built(serdes, part, await built if hasattr(built, "__await__") else built, left)
    except BaseException:
        await serdes.close_awaited()
        raise
    return serdes, left


def take_built(serdes: Serdes, part: str, built: Any, left: dict[str, Any]) -> dict[str, Any]:
    """Add a builder's result; return the settings of ``left`` that the builder has kept too."""
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        raise ConfigError(f"the builder of the {part} must return (serde, dict of settings), not {built!r}")
    serde, remaining = built
    setattr(serdes, part, serde)
    serdes.owned.append(serde)
    return {key: value for key, value in left.items() if key in remaining}


def _closers(serdes: Iterable[Any], *names: str) -> list[Callable[[], Any]]:
    found = (getattr(serde, name, None) for serde in serdes for name in names)
    return [close for close in found if callable(close)]
