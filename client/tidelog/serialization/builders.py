"""Serializers and deserializers that a client builds from its settings, and owns (confluent-kafka's builders)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.serialization.primitives import Deserializer, Serializer
from tidelog_foundation.errors import ConfigError

CLUSTER_ID_TIMEOUT_S = 60.0
"""A serializer that needs the cluster's id waits so long for it."""


class SerializerBuilder:
    """Builds the serializer of a client from its settings: derive from it."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return the serializer of keys or values, and the settings that are left for the client."""
        raise NotImplementedError


class DeserializerBuilder:
    """Builds the deserializer of a client from its settings: derive from it."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return the deserializer of keys or values, and the settings that are left for the client."""
        raise NotImplementedError


@dataclass(slots=True)
class Serdes:
    """A client's serializers or deserializers. It closes those that it has built, and no others."""

    key: Callable[..., Any] | None = None
    value: Callable[..., Any] | None = None
    owned: list[Any] = field(default_factory=list)

    def resolve_cluster_id(self, resolver: Callable[[], Any], setter: str = "set_cluster_id_resolver") -> None:
        """Hand ``resolver``, which returns the cluster's id, to those that take one."""
        for serde in (self.key, self.value):
            set_resolver = getattr(serde, setter, None)
            if callable(set_resolver):
                set_resolver(resolver)

    def close(self) -> None:
        """Close what was built, though closing one of them fails; the first error comes out of here, at the end."""
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
        """Close what was built, awaiting ``aclose()`` where there is one."""
        owned, self.owned = self.owned, []
        for serde in owned:
            for close in _closers([serde], "aclose", "close")[:1]:
                outcome = close()
                if hasattr(outcome, "__await__"):
                    await outcome


def pop_builders(settings: dict[str, Any], kind: str) -> tuple[Serdes, dict[str, Any]]:
    """Take ``key.<kind>`` and ``value.<kind>`` out of the settings, and their builders, by what each is for.

    Raises:
        ConfigError: one is given together with its builder, or cannot be called.
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
    """Build a client's serdes; returns them and the settings for the client.

    A builder gets all settings, and the client those that no builder has taken.

    Raises:
        ConfigError: as :func:`pop_builders`, or a builder returned something else than a pair.
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
    """As :func:`build_serdes`, for builders whose ``build()`` may be a coroutine function."""
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
    """Add what a builder returned; returns the settings of ``left`` that it has left too."""
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        raise ConfigError(f"the builder of the {part} must return (serde, dict of settings), not {built!r}")
    serde, remaining = built
    setattr(serdes, part, serde)
    serdes.owned.append(serde)
    return {key: value for key, value in left.items() if key in remaining}


def _closers(serdes: Iterable[Any], *names: str) -> list[Callable[[], Any]]:
    found = (getattr(serde, name, None) for serde in serdes for name in names)
    return [close for close in found if callable(close)]
