"""Node settings that are no settings of all nodes: those of single listeners, and those unknown to Tidelog.

Limits of single listeners take effect (KIP-402, KIP-612). Unknown settings are stored where Apache Kafka would store
them, without effect.

Tools and plug-ins set their own and Kafka's settings on brokers without checking what the cluster supports. A node
stores and describes them and logs a warning. It refuses settings that Kafka refuses, those that would seem to protect
listeners, and passwords, because the metadata log would contain them in plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog_foundation.config.apache_kafka import DYNAMIC_KEYS, FIXED_KEYS, LISTENER_KEYS, SINGLE_BROKER_KEYS
from tidelog_foundation.config.broker import DYNAMIC_BROKER_KEYS, READ_ONLY_BROKER_KEYS, DynamicBrokerConfig
from tidelog_foundation.config.settings import SettingInfo, check_type, describe, parse_config, unknown_key
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.security.ssl_settings import LISTENER_PREFIX, is_listener_key

MAX_FOREIGN_SETTINGS = 1_000
"""The most such settings of one node, or of all nodes."""
MAX_KEY_BYTES = 255
"""The longest such key, in bytes of UTF-8."""
UNKNOWN_TYPE = "UNKNOWN"
_PASSWORD = "PASSWORD"
_LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate")
_DOC = "No setting of Tidelog: it is kept and has no effect."
_INFOS = {info.key: info for info in describe(DynamicBrokerConfig)}


def is_foreign(key: str) -> bool:
    """Return True if nodes do not have the setting, neither at run time nor in their properties files."""
    return key not in DYNAMIC_BROKER_KEYS and key not in READ_ONLY_BROKER_KEYS


def listener_limit(key: str) -> str | None:
    """Return the setting that a key with a listener's prefix sets at run time, or None."""
    if not is_listener_key(key):
        return None
    rest = key.removeprefix(LISTENER_PREFIX)
    return next((limit for limit in _LISTENER_LIMITS if rest.removesuffix(f".{limit}") not in ("", rest)), None)


def foreign_info(key: str) -> SettingInfo:
    """Describe a setting: with Kafka's type if Kafka has it, else as a secret of unknown type."""
    limit = listener_limit(key)
    if limit is not None:
        info = _INFOS[limit]
        return replace(info, key=key, doc=f"{limit} of one listener.", default=None)
    config_type = DYNAMIC_KEYS.get(key, UNKNOWN_TYPE)
    is_kafkas = key in DYNAMIC_KEYS
    return SettingInfo(key, config_type, None, _DOC, is_kafkas, not is_kafkas, config_type, "", ())


def with_effect(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that nodes apply at run time."""
    return {key: value for key, value in settings.items() if key in DYNAMIC_BROKER_KEYS}


def warn_of(key: str) -> str:
    """Return a warning that names an unknown key and the closest known one."""
    return unknown_key(key.encode("unicode_escape").decode(), DYNAMIC_BROKER_KEYS)


def check_foreign(key: str, value: str, node: str) -> None:
    """Raise if ``node`` must not store the setting; ``""`` means all nodes.

    Raises:
        TidelogError: INVALID_REQUEST.
    """
    if reason := _refusal(key, node):
        raise error_for(ErrorCode.INVALID_REQUEST, f"{key[:MAX_KEY_BYTES]} {reason}")
    limit = listener_limit(key)
    if limit is not None:
        _check_limit(key, limit, value)
        return
    check_type(key, value, DYNAMIC_KEYS.get(key, UNKNOWN_TYPE))


def check_foreign_count(count: int) -> None:
    """Raise POLICY_VIOLATION if a resource would have too many settings without effect."""
    if count > MAX_FOREIGN_SETTINGS:
        text = f"{count} settings unknown to nodes exceed the limit of {MAX_FOREIGN_SETTINGS}"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)


def _check_limit(key: str, limit: str, value: str) -> None:
    try:
        parse_config(DynamicBrokerConfig, {limit: value})
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{key}: {error.message}") from error


def _refusal(key: str, node: str) -> str | None:
    if key in FIXED_KEYS:
        return "cannot change at run time"
    if key in LISTENER_KEYS or (is_listener_key(key) and listener_limit(key) is None):
        return "cannot change at run time; a node reads changed certificates again from their files"
    if DYNAMIC_KEYS.get(key) == _PASSWORD:
        return "is a password, which the metadata log would store in plain text"
    if key in SINGLE_BROKER_KEYS and not node:
        return "can be set only on a single broker, not on all of them"
    size = len(key.encode())
    return f"... has {size} bytes, more than {MAX_KEY_BYTES}" if size > MAX_KEY_BYTES else None
