"""The SASL mechanisms of a server's listeners, and its own logins, made from their settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import ModuleType
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, USER_PREFIX, JaasEntry
from tidelog_foundation.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SaslLogin, SaslMechanism
from tidelog_foundation.sasl.plain import PlainLogin, PlainMechanism
from tidelog_foundation.sasl.scram import TOKEN_AUTH, ScramAccounts, ScramLogin, ScramSaslMechanism
from tidelog_foundation.sasl.scram_credentials import MECHANISMS
from tidelog_foundation.sasl.settings import MechanismSettings

_NONCE_BYTES: Final = 24


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ServedMechanism:
    """A mechanism of a listener. It works from :meth:`start` to :meth:`stop`, which the server calls once each."""

    mechanism: SaslMechanism
    max_session_ms: int = 0
    """connections.max.reauth.ms."""
    start: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts in the cluster's metadata, for mechanisms that look them up at each login."""

    users: ScramAccounts
    """The users with SCRAM credentials."""
    tokens: ScramAccounts
    """The delegation tokens."""


def served_mechanism(listener: str, settings: MechanismSettings, accounts: Accounts) -> ServedMechanism:
    """Return a mechanism that a listener has enabled.

    Raises:
        ConfigError: There is no such mechanism, or its settings are invalid. The text names the listener.
    """
    try:
        return _served(settings, accounts)
    except ConfigError as error:
        raise ConfigError(f"{settings.name} of listener {listener}: {error.message}") from error


def own_login(listener: str, settings: MechanismSettings) -> SaslLogin:
    """Return the credentials with which a server logs in to others, over a listener's mechanism.

    Raises:
        ConfigError: There is no such mechanism, or its settings are invalid. The text names the listener.
    """
    try:
        return _login(settings)
    except ConfigError as error:
        raise ConfigError(f"the login with {settings.name} over listener {listener}: {error.message}") from error


def _served(settings: MechanismSettings, accounts: Accounts) -> ServedMechanism:
    max_session_ms = settings.settings.connections_max_reauth_ms
    if settings.name == PLAIN:
        users = _plain_entry(settings).users()
        if not users:
            raise ConfigError(f'sasl.jaas.config has no user: each is an option {USER_PREFIX}<name>="<password>"')
        return ServedMechanism(PlainMechanism(users), max_session_ms)
    if settings.name in MECHANISMS:
        if settings.login is not None:
            _scram_entry(settings)
        mechanism = ScramSaslMechanism(MECHANISMS[settings.name], accounts.users, accounts.tokens, _new_nonce)
        return ServedMechanism(mechanism, max_session_ms)
    if settings.name == OAUTHBEARER:
        found = _oauth().oauthbearer_listener(settings.settings, settings.login)
        return ServedMechanism(found.mechanism, max_session_ms, found.start, found.stop)
    if settings.name == GSSAPI:
        kerberos = settings.settings
        mechanism = _kerberos().gssapi_mechanism(
            settings.login, kerberos.sasl_kerberos_service_name, kerberos.sasl_kerberos_principal_to_local_rules
        )
        return ServedMechanism(mechanism, max_session_ms)
    raise ConfigError("the mechanism is not supported")


def _login(settings: MechanismSettings) -> SaslLogin:
    if settings.name == PLAIN:
        entry = _plain_entry(settings)
        return PlainLogin(entry.require("username"), entry.require("password"))
    if settings.name in MECHANISMS:
        entry = _scram_entry(settings)
        extensions = {TOKEN_AUTH: "true"} if entry.flag(TOKEN_AUTH) else {}
        name, password = entry.require("username"), entry.require("password")
        return ScramLogin(MECHANISMS[settings.name], name, password, _new_nonce, extensions)
    if settings.name == OAUTHBEARER:
        bearer: SaslLogin = _oauth().oauthbearer_login(settings.settings, settings.login)
        return bearer
    if settings.name == GSSAPI:
        ticket: SaslLogin = _kerberos().gssapi_login(settings.login, settings.settings.sasl_kerberos_service_name)
        return ticket
    raise ConfigError("the mechanism is not supported")


def _oauth() -> ModuleType:
    """Return the module for OAUTHBEARER, whose library is an extra."""
    try:
        from tidelog_foundation.oauth import listener
    except ModuleNotFoundError as error:
        raise ConfigError("the package PyJWT is missing: pip install 'tidelog[oauth]'") from error
    return listener


def _kerberos() -> ModuleType:
    """Return the module for GSSAPI, whose library is an extra."""
    try:
        from tidelog_foundation.kerberos import library
    except (ModuleNotFoundError, ImportError) as error:
        raise ConfigError("the package gssapi is missing: pip install 'tidelog[gssapi]'") from error
    return library


def _plain_entry(settings: MechanismSettings) -> JaasEntry:
    entry = _entry(settings, PLAIN_LOGIN_MODULE)
    entry.check_options("username", "password", prefix=USER_PREFIX)
    return entry


def _scram_entry(settings: MechanismSettings) -> JaasEntry:
    entry = _entry(settings, SCRAM_LOGIN_MODULE)
    entry.check_options("username", "password", TOKEN_AUTH)
    return entry


def _entry(settings: MechanismSettings, module: str) -> JaasEntry:
    if settings.login is None:
        raise ConfigError("sasl.jaas.config is missing")
    settings.login.check_module(module)
    return settings.login


def _new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)
