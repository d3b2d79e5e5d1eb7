"""The settings of a cluster link: those of a client of the source, and those of the copied group offsets.

The keys are Kafka's and Confluent's. Every node uses the settings, so they contain certificates and keys themselves and
not the paths of files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.config.endpoints import parse_addresses
from tidelog_foundation.config.settings import config_keys, describe, int_setting, parse_config, setting, setting_of
from tidelog_foundation.config.validators import at_least, one_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, JaasEntry, parse_jaas
from tidelog_foundation.sasl.scram_credentials import MECHANISMS
from tidelog_foundation.security.ssl_settings import SslSettings

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PLAIN: Final = "PLAIN"
MAX_LINKS: Final = 100
"""The largest number of links of a cluster. Every node connects to the source of each."""
MAX_NAME_LENGTH: Final = 200
_OWN_TO_EACH_CLUSTER: Final = frozenset(
    (
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    )
)
"""The settings of topics that a mirror does not take over from its source, as with Confluent's links."""
COPIED_SETTINGS: Final = frozenset(config_keys(TopicConfig)) - _OWN_TO_EACH_CLUSTER
"""The settings of topics that a mirror takes over from its source."""
MAX_SETTINGS_REPORTS: Final = 100
"""The largest number of topics whose settings are read from a source, or reported to the controller, in one request."""
_LITERAL, _PREFIXED, _ANY = "LITERAL", "PREFIXED", "*"
_INCLUDE, _EXCLUDE = "INCLUDE", "EXCLUDE"
_MAX_FILTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """A part of ``consumer.offset.group.filters``: groups of a name or a prefix, which it includes or excludes."""

    name: str
    is_prefix: bool
    is_included: bool

    def matches(self, group_id: str) -> bool:
        """Return whether the filter is about a group."""
        if self.name == _ANY:
            return True
        return group_id.startswith(self.name) if self.is_prefix else group_id == self.name


def settings_to_change(own: Mapping[str, str], of_source: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings that a mirror topic must set, and as None those to remove, to be equal to its source."""
    changed = {n: v for n, v in of_source.items() if n in COPIED_SETTINGS and own.get(n) != v}
    return changed | {n: None for n in own if n in COPIED_SETTINGS and n not in of_source}


def parse_group_filters(text: str) -> tuple[GroupFilter, ...]:
    """Return the filters in Confluent's JSON: {"groupFilters": [{"name", "patternType", "filterType"}, ...]}.

    Raises:
        ValueError: The text has another form.
    """
    if not text:
        return ()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(found, dict) or found.keys() != {"groupFilters"} or not isinstance(found["groupFilters"], list):
        raise ValueError('must be {"groupFilters": [...]}')
    if len(found["groupFilters"]) > _MAX_FILTERS:
        raise ValueError(f"has {len(found['groupFilters'])} filters, at most {_MAX_FILTERS} are allowed")
    return tuple(map(_group_filter, found["groupFilters"]))


def _group_filter(part: Any) -> GroupFilter:
    if not isinstance(part, dict) or part.keys() != {"name", "patternType", "filterType"}:
        raise ValueError(f"a filter has name, patternType and filterType, not {part}")
    name, pattern, kind = part["name"], part["patternType"], part["filterType"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a filter is a text that is not empty, not {name!r}")
    if pattern not in (_LITERAL, _PREFIXED) or kind not in (_INCLUDE, _EXCLUDE):
        raise ValueError(f"patternType is {_LITERAL} or {_PREFIXED}, filterType {_INCLUDE} or {_EXCLUDE}: {part}")
    return GroupFilter(name, pattern == _PREFIXED, kind == _INCLUDE)


_ssl = partial(setting_of, SslSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """The settings of a link."""

    bootstrap_servers: str = setting(doc="Addresses of the source, as HOST:PORT,HOST:PORT,...", check=parse_addresses)
    security_protocol: str = setting(
        PLAINTEXT,
        "The protocol of the source's listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        one_of(PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL),
    )
    sasl_mechanism: str = setting(
        PLAIN, "The mechanism of SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.", one_of(PLAIN, *MECHANISMS)
    )
    sasl_jaas_config: str | None = setting(
        None,
        "The login module and its options, such as the username and the password.",
        secret=True,
        config_type="PASSWORD",
    )
    ssl_keystore_type: str = _ssl("ssl_keystore_type")
    ssl_keystore_key: str | None = _ssl("ssl_keystore_key")
    ssl_keystore_certificate_chain: str | None = _ssl("ssl_keystore_certificate_chain")
    ssl_key_password: str | None = _ssl("ssl_key_password")
    ssl_truststore_type: str = _ssl("ssl_truststore_type")
    ssl_truststore_certificates: str | None = _ssl("ssl_truststore_certificates")
    ssl_enabled_protocols: tuple[str, ...] = _ssl("ssl_enabled_protocols")
    ssl_cipher_suites: tuple[str, ...] = _ssl("ssl_cipher_suites")
    ssl_endpoint_identification_algorithm: str | None = _ssl("ssl_endpoint_identification_algorithm")
    topic_config_sync_ms: int = int_setting(
        5_000,
        "The interval at which settings of mirror topics follow those of the source, in milliseconds.",
        at_least(100),
    )
    consumer_offset_sync_enable: bool = setting(
        False, "Whether committed offsets of groups are copied for mirror topics."
    )
    consumer_offset_sync_ms: int = int_setting(
        30_000, "The interval at which committed offsets are copied, in milliseconds.", at_least(100)
    )
    consumer_offset_group_filters: str = setting(
        "",
        'The groups whose offsets are copied, as {"groupFilters": [{"name": "*", "patternType": "LITERAL", '
        '"filterType": "INCLUDE"}]}. A group is copied if a filter includes it and none excludes it. Empty: none.',
        parse_group_filters,
    )

    @property
    def tls(self) -> SslSettings:
        """The settings of TLS."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name.startswith("ssl_")}
        return SslSettings(**own)

    @property
    def has_tls(self) -> bool:
        """True if connections use TLS."""
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if connections log in."""
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)

    def login(self) -> JaasEntry:
        """Return the login.

        Raises:
            ConfigError: ``sasl.jaas.config`` is missing or does not fit the mechanism.
        """
        if self.sasl_jaas_config is None:
            raise ConfigError(f"security.protocol={self.security_protocol} needs sasl.jaas.config")
        entry = parse_jaas(self.sasl_jaas_config)
        entry.check_module(PLAIN_LOGIN_MODULE if self.sasl_mechanism == PLAIN else SCRAM_LOGIN_MODULE)
        entry.check_options("username", "password")
        entry.require("username")
        entry.require("password")
        return entry

    def copies_group(self, group_id: str) -> bool:
        """Return whether the filters include a group, and none excludes it."""
        found = [f for f in parse_group_filters(self.consumer_offset_group_filters) if f.matches(group_id)]
        return bool(found) and all(f.is_included for f in found)


_SECRETS: Final = frozenset(info.key for info in describe(LinkConfig) if info.secret)


def is_secret(key: str) -> bool:
    """Return whether the setting's value must not be shown."""
    return key in _SECRETS


def parse_link_settings(settings: Mapping[str, str]) -> LinkConfig:
    """Return the settings of a link.

    Raises:
        ConfigError: A key is unknown, or a value is invalid. Secret values are not in the text.
    """
    config = parse_config(LinkConfig, settings)
    if not parse_addresses(config.bootstrap_servers):
        raise ConfigError('configuration "bootstrap.servers" is needed')
    if config.has_sasl:
        config.login()
    elif config.sasl_jaas_config is not None:
        raise ConfigError(f"sasl.jaas.config has no effect with security.protocol={config.security_protocol}")
    return config
