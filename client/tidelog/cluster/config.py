"""The settings common to all clients, and the cluster client that they configure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidelog.cluster.bootstrap import parse_bootstrap_servers
from tidelog.cluster.client import ClusterClient
from tidelog.cluster.librdkafka import select_settings
from tidelog.cluster.sasl import OAuthCallback
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import at_least, between, config_keys, setting
from tidelog_foundation.config.providers import resolve_client_settings
from tidelog_foundation.errors import ConfigError

logger = logging.getLogger("tidelog_foundation.config")

MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityConfig):
    """The addresses of the cluster, and the security, timeouts and back-offs of a client."""

    bootstrap_servers: tuple[str, ...] = setting(
        doc="Addresses of nodes for the first request of metadata, as host:port,host:port.",
        check=parse_bootstrap_servers,
        aliases=("metadata.broker.list",),
    )
    client_id: str = setting("tidelog", "A name for this client, which nodes see as the user agent of its connections.")
    request_timeout_ms: int = setting(
        30_000, "The timeout of a request, in milliseconds.", at_least(1), aliases=("socket.timeout.ms",)
    )
    retry_backoff_ms: int = setting(
        100, "The wait before the first retry, in milliseconds; it doubles with each further retry.", at_least(1)
    )
    retry_backoff_max_ms: int = setting(1_000, "The maximum wait between retries, in milliseconds.", at_least(1))
    reconnect_backoff_ms: int = setting(
        50,
        "The wait before the first attempt to reconnect, in milliseconds; it doubles with each further attempt.",
        between(0, 3_600_000),
    )
    reconnect_backoff_max_ms: int = setting(
        200, "The maximum wait between attempts to reconnect, in milliseconds.", between(0, 3_600_000)
    )
    socket_connection_setup_timeout_ms: int = setting(
        1_000, "The timeout for opening a connection to one address, in milliseconds.", between(1, MAX_INT32)
    )
    enable_metrics_push: bool = setting(
        False, "Whether the client pushes its metrics if the cluster has a subscription to them (KIP-714)."
    )

    def cluster_client(self, oauth_cb: OAuthCallback | None = None) -> ClusterClient:
        """Return a new client with these settings; it connects on first use.

        Raises:
            ConfigError: The security settings contradict each other, or a file cannot be read.
        """
        return ClusterClient(
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            channel_options=[
                ("grpc.initial_reconnect_backoff_ms", max(self.reconnect_backoff_ms, 1)),
                ("grpc.max_reconnect_backoff_ms", max(self.reconnect_backoff_max_ms, self.reconnect_backoff_ms, 1)),
                # Despite its name, the timeout of one attempt.
                ("grpc.min_reconnect_backoff_ms", self.socket_connection_setup_timeout_ms),
            ],
            security=self.client_security(oauth_cb),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingConfig(ClientConfig):
    """The settings of clients that track partition leaders."""

    metadata_max_age_ms: int = setting(
        300_000,
        "The age at which metadata is refreshed even without errors, to discover new partitions, in milliseconds.",
        between(100, MAX_INT32),
        aliases=("topic.metadata.refresh.interval.ms",),
    )
    enable_metrics_push: bool = setting(
        True, "Whether the client pushes its metrics if the cluster has a subscription to them (KIP-714)."
    )


def read_settings(
    cls: type[ClientConfig],
    given: Mapping[str, Any],
    scope: Literal["P", "C", "A"],
    *,
    objects: Collection[str] = (),
) -> dict[str, Any]:
    """Return the settings for ``parse_config(cls, ...)``, without librdkafka's settings that have no effect here.

    ``scope`` is the kind of client: producer, consumer or admin client. ``objects`` are the keys of callbacks and
    similar objects, which stay in the settings for the caller. The providers of ``config.providers`` replace
    references. Each setting without effect is logged once per process, to the setting ``logger`` if given.

    Raises:
        ConfigError: Tidelog does not support a setting, or a reference has no value.
    """
    own = {*config_keys(cls), *objects, _LOGGER}
    settings, ignored = select_settings(resolve_client_settings(given), own, scope)
    log = settings.get(_LOGGER) or logger
    if not callable(getattr(log, "log", None)):
        raise ConfigError(f'invalid value {log!r} for configuration "logger": must be a logging.Logger')
    for key, reason in ignored.items():
        if (key, reason) not in _warned:
            _warned.add((key, reason))
            log.log(logging.WARNING, 'Configuration "%s" has no effect: %s', key, reason)
    return settings


def take_callbacks(settings: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Remove the callbacks from the settings and return them, None for those not given.

    Raises:
        TypeError: a callback is not callable.
    """
    callbacks = {key: settings.pop(key, None) for key in keys}
    for key, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{key} must be callable, not {type(callback).__name__}")
    return callbacks


def take_logger(settings: dict[str, Any], default: logging.Logger) -> logging.Logger:
    """Remove ``logger`` from the settings and return it, or ``default`` without one."""
    log: logging.Logger | None = settings.pop(_LOGGER, None)
    return log or default


_LOGGER = "logger"
_warned: set[tuple[str, str]] = set()
