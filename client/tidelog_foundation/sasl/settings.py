"""The SASL settings of servers, with Kafka's keys and defaults (BrokerSecurityConfigs, SaslConfigs).

``listener.name.<listener>.`` before a key sets it for one listener, and ``listener.name.<listener>.<mechanism>.`` for
one mechanism of a listener, both names in lower case. ``sasl.jaas.config`` is only valid in the last form, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog_foundation.config.settings import config_keys, int_setting, parse_config, setting, unknown_key
from tidelog_foundation.config.validators import at_least, each_of, one_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.kerberos.settings import KerberosSettings
from tidelog_foundation.oauth.settings import OAuthBearerSettings
from tidelog_foundation.sasl.jaas import JaasEntry, parse_jaas
from tidelog_foundation.sasl.mechanism import GSSAPI, MECHANISMS

JAAS_CONFIG: Final = "sasl.jaas.config"
_OF_LISTENERS: Final = frozenset(("sasl.enabled.mechanisms", "sasl.server.max.receive.size"))
"""Settings that a listener may override, but not a mechanism."""
_OF_PROCESSES: Final = frozenset(
    (
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "connection.failed.authentication.delay.ms",
    )
)


# Not slotted: the settings of nodes inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class SaslSettings(OAuthBearerSettings, KerberosSettings):
    """The SASL settings of a server's listeners, with those of its mechanisms."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        (GSSAPI,),
        f"The mechanisms of listeners with SASL: {', '.join(MECHANISMS)}. Kafka's default, GSSAPI, is Kerberos. "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config has the credentials of each.",
        each_of(*MECHANISMS),
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        GSSAPI,
        "The mechanism with which nodes log in to each other, if the inter-broker listener has SASL. The listener must "
        "have it enabled, and its sasl.jaas.config also has the node's own credentials.",
        one_of(*MECHANISMS),
    )
    sasl_mechanism_controller_protocol: str = setting(
        GSSAPI,
        "The mechanism with which nodes and controllers log in to controllers, if their listener has SASL. "
        "listener.name.<controller listener>.<mechanism>.sasl.jaas.config has the process's own credentials.",
        one_of(*MECHANISMS),
    )
    connections_max_reauth_ms: int = setting(
        0,
        "The time after which a client must authenticate again on its connection (KIP-368), in milliseconds; 0 means "
        "never. A client learns the time, and a connection with a later request is closed.",
        at_least(0),
    )
    sasl_server_max_receive_size: int = int_setting(
        512 * 1024, "The maximum size of a request before the authentication, in bytes.", at_least(1)
    )
    connection_failed_authentication_delay_ms: int = int_setting(
        100,
        "The time by which the answer to a failed authentication is delayed, in milliseconds. It must be less than "
        "connections.max.idle.ms.",
        at_least(0),
    )


SASL_KEYS: Final = frozenset(config_keys(SaslSettings))


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """One mechanism of a listener. ``settings`` are those that apply to it, with all overrides."""

    name: str
    login: JaasEntry | None
    """The value of sasl.jaas.config, None without one."""
    settings: SaslSettings


@dataclass(frozen=True, slots=True)
class ListenerSaslSettings:
    """The enabled mechanisms of a listener by name, in the configured order."""

    listener: str
    mechanisms: Mapping[str, MechanismSettings]
    max_receive_size: int
    """sasl.server.max.receive.size, in bytes."""

    def enabled(self, mechanism: str, key: str) -> MechanismSettings:
        """Return the settings of the mechanism that the setting ``key`` names.

        Raises:
            ConfigError: The mechanism is not enabled.
        """
        if mechanism not in self.mechanisms:
            raise ConfigError(
                f"{key} {mechanism} is not in sasl.enabled.mechanisms of the listener {self.listener}: "
                f"{', '.join(self.mechanisms)}"
            )
        return self.mechanisms[mechanism]


def is_sasl_key(key: str) -> bool:
    """Return whether ``key`` may follow ``listener.name.<listener>.``: a key of SASL, or of one of its mechanisms."""
    mechanism, own = _split(key)
    return own == JAAS_CONFIG or own in SASL_KEYS if mechanism is not None else key in SASL_KEYS or key == JAAS_CONFIG


def listener_sasl_settings(
    listener: str, shared: Mapping[str, str], overrides: Mapping[str, str]
) -> ListenerSaslSettings:
    """Return the settings of one listener with SASL.

    ``shared`` are the keys of the whole process, of which those of SASL count. ``overrides`` are the listener's SASL
    keys without the prefix ``listener.name.<listener>.``.

    Raises:
        ConfigError: A value is invalid, or a key has no effect at its place. The text names the full key.
    """
    own = {key: value for key, value in shared.items() if key in SASL_KEYS}
    of_mechanisms: dict[str, dict[str, str]] = {}
    for key, value in overrides.items():
        mechanism, rest = _split(key)
        _check_place(listener, mechanism, rest)
        if mechanism is None:
            own[rest] = value
        else:
            of_mechanisms.setdefault(mechanism, {})[rest] = value
    settings = parse_config(SaslSettings, own)
    enabled = settings.sasl_enabled_mechanisms
    if not enabled:
        raise ConfigError(f"listener {listener} needs a mechanism in sasl.enabled.mechanisms")
    for mechanism, values in of_mechanisms.items():
        if mechanism not in enabled:
            key = _full_key(listener, mechanism, next(iter(values)))
            raise ConfigError(f'configuration "{key}": {mechanism} is not in sasl.enabled.mechanisms of the listener')
    found = (_mechanism(listener, name, own, of_mechanisms.get(name, {})) for name in enabled)
    return ListenerSaslSettings(listener, {each.name: each for each in found}, settings.sasl_server_max_receive_size)


def _mechanism(listener: str, name: str, own: Mapping[str, str], overrides: dict[str, str]) -> MechanismSettings:
    values = {key: value for key, value in overrides.items() if key != JAAS_CONFIG}
    text = overrides.get(JAAS_CONFIG)
    try:
        login = parse_jaas(text) if text is not None else None
    except ConfigError as error:
        key = _full_key(listener, name, JAAS_CONFIG)
        raise ConfigError(f'configuration "{key}": {error.message}') from error
    return MechanismSettings(name, login, parse_config(SaslSettings, {**own, **values}))


def _check_place(listener: str, mechanism: str | None, key: str) -> None:
    given = _full_key(listener, mechanism, key)
    if key not in SASL_KEYS and key != JAAS_CONFIG:
        raise ConfigError(unknown_key(given, [_full_key(listener, mechanism, each) for each in SASL_KEYS]))
    if key in _OF_PROCESSES:
        raise ConfigError(f'configuration "{given}": {key} is a setting of all listeners together')
    if mechanism is not None and key in _OF_LISTENERS:
        raise ConfigError(f'configuration "{given}": {key} is a setting of listeners, not of mechanisms')
    if mechanism is None and key == JAAS_CONFIG:
        example = _full_key(listener, "<mechanism>", key)
        raise ConfigError(f'configuration "{given}" must name the mechanism in lower case: {example}')


def _split(key: str) -> tuple[str | None, str]:
    """Return the mechanism and the rest of a listener's key, None for a key without a mechanism."""
    first, _, rest = key.partition(".")
    return next(((each, rest) for each in MECHANISMS if each.lower() == first), (None, key))


def _full_key(listener: str, mechanism: str | None, key: str) -> str:
    middle = f"{mechanism.lower()}." if mechanism is not None else ""
    return f"listener.name.{listener.lower()}.{middle}{key}"
