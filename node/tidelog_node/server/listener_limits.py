"""The limits of a node's single listeners: ``listener.name.<listener>.`` before a key of :class:`NodeLimitsConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidelog_foundation.config import between, int_setting
from tidelog_foundation.config.connections import UNLIMITED, OwnLimits, OwnLimitsConfig
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.config.foreign import listener_limit
from tidelog_foundation.config.settings import config_keys
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.security.ssl_settings import LISTENER_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimitsConfig(OwnLimitsConfig):
    """The settings of the connections of one of a node's listeners."""

    max_connection_creation_rate: int | None = int_setting(
        None, "The maximum rate of new connections of the listener, per second.", between(1, UNLIMITED)
    )

    def limits(self) -> OwnLimits:
        """Return the limits that the settings describe."""
        return replace(OwnLimitsConfig.limits(self), max_creation_rate=self.max_connection_creation_rate)


LIMIT_KEYS: Final = frozenset(config_keys(NodeLimitsConfig))


def listener_limits(settings: Mapping[str, str], listeners: Iterable[NamedListener]) -> dict[str, str]:
    """Return the settings that are limits of these listeners and can change at run time, by their prefixed keys."""
    names = tuple(listener.name.lower() for listener in listeners)
    return {
        key: value
        for key, value in settings.items()
        if (limit := listener_limit(key)) is not None
        and key.removeprefix(LISTENER_PREFIX).removesuffix(f".{limit}") in names
    }
