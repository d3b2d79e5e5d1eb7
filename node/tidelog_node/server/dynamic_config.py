"""The current settings of this node: its properties file, overridden by settings changed at run time (KIP-226).

The metadata image contains the overrides. Those of this node (``"7"``) take precedence over those of all nodes
(``""``), which take precedence over the file. Components that use a changeable setting are notified of changes; nothing
restarts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Set

from tidelog_foundation.config import DynamicBrokerConfig, describe, parse_config
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS, DYNAMIC_BROKER_KEYS, override_broker_settings
from tidelog_foundation.config.connections import OwnLimits, own_limits
from tidelog_foundation.config.foreign import warn_of, with_effect
from tidelog_foundation.config.settings import HIDDEN, ProvidedText, SettingInfo
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.security.listener_settings import listener_security
from tidelog_foundation.security.ssl_settings import is_listener_key
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.listener_limits import LIMIT_KEYS, NodeLimitsConfig, listener_limits
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.topic_config import MIN_INSYNC_REPLICAS, broker_settings

logger = logging.getLogger(__name__)

_INFOS = tuple(describe(NodeConfig))
_ALIASES = {alias: info.key for info in _INFOS for alias in info.aliases}


class DynamicNodeConfig:
    """The settings of a node, updated from the image on its event loop.

    ``file`` has the settings of the properties file under their own names.
    """

    infos = _INFOS
    """All settings of a node."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Read the properties.

        Raises:
            ConfigError: A setting is invalid.
        """
        self.file: Mapping[str, str] = {_ALIASES.get(key, key): value for key, value in properties.items()}
        if self.file.get(CORDONED_LOG_DIRS, "").strip():
            text = f"{CORDONED_LOG_DIRS} is set at run time: tidelog node drain, or tidelog config set"
            raise error_for(ErrorCode.INVALID_CONFIG, text)
        self._own_file = {key: value for key, value in self.file.items() if not is_listener_key(key)}
        self.current = parse_config(NodeConfig, self._own_file)
        listeners = (
            *self.current.all_listeners,
            self.current.controller_listener,
            *self.current.monitoring_listeners,
        )
        self._own_limits: Mapping[str, OwnLimits] = own_limits(self.file, self.current.all_listeners, NodeLimitsConfig)
        self.listener_security = listener_security(properties, listeners, LIMIT_KEYS)
        """The security settings of each listener by name, with those for the controllers' and the monitoring port's."""
        self._node_id = self.current.node_id
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._without_effect: Set[str] = frozenset()
        self._users: list[Callable[[NodeConfig], None]] = []

    @property
    def listener_limits(self) -> ListenerLimits:
        """The limits of the listeners, with those of single ones."""
        return dataclasses.replace(self.current.listener_limits(), of_listeners=self._own_limits)

    def subscribe(self, user: Callable[[NodeConfig], None]) -> None:
        """Call ``user`` with the settings after every change."""
        self._users.append(user)

    def follow(self, image: MetadataImage) -> None:
        """Apply an image's settings for this node.

        Settings that conflict with the file are logged and ignored, and the current ones stay. ``min.insync.replicas``
        is the exception: the controller maintains eligible leader replicas by it (KIP-966), and a leader with another
        value would lose records.
        """
        everywhere, here = broker_settings(image), broker_settings(image, self._node_id)
        of_listeners = listener_limits({**everywhere, **here}, self.current.all_listeners)
        self._warn_of({*everywhere, *here} - DYNAMIC_BROKER_KEYS - of_listeners.keys())
        limits = self._limits_with(of_listeners)
        dynamic = (with_effect(everywhere), with_effect(here))
        if (dynamic, limits) == (self._dynamic, self._own_limits):
            return
        self._dynamic = dynamic
        settings = override_broker_settings(override_broker_settings(self._own_file, dynamic[0]), dynamic[1])
        try:
            changed = parse_config(NodeConfig, settings)
        except ConfigError as error:
            logger.error("The dynamic settings are invalid on this node and are ignored: %s", error.message)
            changed = dataclasses.replace(self.current, min_insync_replicas=_min_insync_replicas(settings))
        before, self.current = self.current, changed
        differences = _differences(before, changed, settings)
        if limits != self._own_limits:
            self._own_limits = limits
            differences.append(f"limits of listeners: {limits}")
        if not differences:
            return
        logger.info("Settings have changed: %s", ", ".join(differences))
        for user in self._users:
            user(changed)

    def _limits_with(self, of_listeners: Mapping[str, str]) -> Mapping[str, OwnLimits]:
        try:
            return own_limits({**self.file, **of_listeners}, self.current.all_listeners, NodeLimitsConfig)
        except ConfigError as error:
            logger.error("The dynamic limits of listeners are invalid on this node and are ignored: %s", error.message)
            return self._own_limits

    def _warn_of(self, without_effect: Set[str]) -> None:
        for key in sorted(without_effect - self._without_effect):
            logger.warning("A dynamic setting has no effect on this node: %s", warn_of(key))
        self._without_effect = without_effect


def _min_insync_replicas(settings: Mapping[str, str]) -> int:
    given = {key: value for key, value in settings.items() if key == MIN_INSYNC_REPLICAS}
    return parse_config(DynamicBrokerConfig, given).min_insync_replicas


def _differences(before: NodeConfig, after: NodeConfig, settings: Mapping[str, str]) -> list[str]:
    pairs = ((i, getattr(before, i.attribute), getattr(after, i.attribute)) for i in _INFOS)
    return [f"{i.key} = {HIDDEN if _is_hidden(i, settings) else new}" for i, old, new in pairs if old != new]


def _is_hidden(info: SettingInfo, settings: Mapping[str, str]) -> bool:
    return info.secret or isinstance(settings.get(info.key), ProvidedText)
