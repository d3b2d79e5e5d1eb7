"""The security settings of a server's listeners: TLS and SASL, with ``listener.name.<listener>.`` before a key."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.config.settings import parse_config
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.settings import ListenerSaslSettings, is_sasl_key, listener_sasl_settings
from tidelog_foundation.security.ssl_settings import NONE, SSL_KEYS, SslSettings, is_listener_key, split_listener_key

logger = logging.getLogger(__name__)
_CLIENT_AUTH = "ssl.client.auth"


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security settings of one listener. ``sasl`` is None without SASL."""

    ssl: SslSettings
    sasl: ListenerSaslSettings | None


def listener_security(
    properties: Mapping[str, str], listeners: Iterable[NamedListener], others: Container[str] = ()
) -> dict[str, ListenerSecurity]:
    """Return the settings of each listener by name: the properties' own, overridden by those with its prefix.

    Kafka's prefix has the listener's name in lower case. ``others`` are keys of listeners that are not about security.

    Raises:
        ConfigError: A value is invalid, or a prefixed key is not a setting of one of the listeners.
    """
    named = {x.name.lower(): x for x in listeners}
    overrides: dict[str, dict[str, str]] = {name: {} for name in named}
    for key, value in properties.items():
        if is_listener_key(key):
            name, own = split_listener_key(key, named)
            if own in others:
                continue
            if own not in SSL_KEYS and not is_sasl_key(own):
                raise ConfigError(f'configuration "{key}": "{own}" is not a setting of single listeners')
            overrides[name][own] = value
    return {x.name: _security(x, properties, overrides[name]) for name, x in named.items()}


def _security(listener: NamedListener, properties: Mapping[str, str], overrides: Mapping[str, str]) -> ListenerSecurity:
    shared = {key: value for key, value in properties.items() if key in SSL_KEYS}
    if listener.has_sasl and shared.get(_CLIENT_AUTH, NONE) != NONE and _CLIENT_AUTH not in overrides:
        text = "%s does not apply to listener %s, which has SASL. Set listener.name.%s.%s for it"
        logger.warning(text, _CLIENT_AUTH, listener.name, listener.name.lower(), _CLIENT_AUTH)
    if listener.has_sasl:
        # Kafka's SaslChannelBuilder: a certificate is required beside SASL only by the listener's own setting.
        shared[_CLIENT_AUTH] = NONE
    own = {key: value for key, value in overrides.items() if key in SSL_KEYS}
    sasl = {key: value for key, value in overrides.items() if key not in SSL_KEYS}
    if sasl and not listener.has_sasl:
        key = f"listener.name.{listener.name.lower()}.{next(iter(sasl))}"
        raise ConfigError(f'configuration "{key}": the listener has no SASL, but {listener.security_protocol}')
    return ListenerSecurity(
        parse_config(SslSettings, shared | own),
        listener_sasl_settings(listener.name, properties, sasl) if listener.has_sasl else None,
    )
