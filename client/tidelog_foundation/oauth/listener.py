"""OAUTHBEARER as a listener's settings describe it: the validator of tokens, and the login of the node itself."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.config.settings import parse_config
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.oauth.http import Timeouts, check_url
from tidelog_foundation.oauth.jwks_schedule import JwksSchedule
from tidelog_foundation.oauth.jwks_store import JwksStore
from tidelog_foundation.oauth.jwt_validator import JwtRules, JwtValidator
from tidelog_foundation.oauth.settings import LoginSettings, OAuthBearerSettings
from tidelog_foundation.oauth.token_endpoint import TokenEndpoint, token_source
from tidelog_foundation.oauth.unsecured import OPTION_PREFIX, UNSECURED_OPTIONS, UnsecuredValidator
from tidelog_foundation.sasl.jaas import OAUTHBEARER_LOGIN_MODULE, JaasEntry
from tidelog_foundation.sasl.oauthbearer import OAuthBearerLogin, OAuthBearerMechanism
from tidelog_foundation.security.contexts import client_context
from tidelog_foundation.security.key_material import load_authorities, load_key_material
from tidelog_foundation.security.ssl_settings import SSL_KEYS, SslSettings

_JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_EXTENSION: Final = "extension_"
_CLIENT_OPTIONS: Final = ("clientId", "clientSecret", "scope")


@dataclass(frozen=True, slots=True)
class OAuthBearerListener:
    """The mechanism of a listener, and the keys with which it verifies tokens; None for unsecured tokens.

    The keys are fetched from :meth:`start` to :meth:`stop`.
    """

    mechanism: OAuthBearerMechanism
    keys: JwksStore | None

    def start(self) -> None:
        """Start to fetch the keys."""
        if self.keys is not None:
            self.keys.start()

    def stop(self) -> None:
        """Stop to fetch the keys."""
        if self.keys is not None:
            self.keys.stop()


def oauthbearer_listener(settings: OAuthBearerSettings, login: JaasEntry | None) -> OAuthBearerListener:
    """Return the mechanism of a listener.

    Tokens without a signature are accepted only if the login module has an option ``unsecuredValidator...`` and there
    is no URL of keys.

    Raises:
        ConfigError: The settings describe no validator, or two.
    """
    options = _options(login)
    is_unsecured = any(option.startswith(OPTION_PREFIX) for option in options)
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if is_unsecured and url is not None:
        raise ConfigError(f"OAUTHBEARER has both {_JWKS_URL} and options {OPTION_PREFIX}...: use one of them")
    if is_unsecured:
        return OAuthBearerListener(OAuthBearerMechanism(UnsecuredValidator.from_options(options)), None)
    if url is None:
        raise ConfigError(f"OAUTHBEARER needs {_JWKS_URL}, the keys that verify tokens")
    schedule = JwksSchedule(
        settings.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    keys = JwksStore(check_url(_JWKS_URL, url, "https", "http", "file"), schedule, _tls(options))
    return OAuthBearerListener(OAuthBearerMechanism(JwtValidator(_rules(settings), keys.find)), keys)


def oauthbearer_login(settings: LoginSettings, login: JaasEntry | None) -> OAuthBearerLogin:
    """Return the login of a node as a client of other nodes, with tokens of the token endpoint.

    Raises:
        ConfigError: The endpoint or the credentials are missing or invalid.
    """
    options = _options(login)
    if settings.sasl_oauthbearer_token_endpoint_url is None:
        raise ConfigError(f"the login of OAUTHBEARER needs {_TOKEN_URL}")
    url = check_url(_TOKEN_URL, settings.sasl_oauthbearer_token_endpoint_url, "https", "http")
    endpoint = TokenEndpoint(
        url=url,
        client_id=_credential(settings.sasl_oauthbearer_client_credentials_client_id, options, "clientId"),
        client_secret=_credential(settings.sasl_oauthbearer_client_credentials_client_secret, options, "clientSecret"),
        scope=settings.sasl_oauthbearer_scope or options.get("scope") or None,
        extensions={
            name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
        },
        timeouts=Timeouts(settings.sasl_login_connect_timeout_ms / 1_000, settings.sasl_login_read_timeout_ms / 1_000),
        tls=_tls(options),
    )
    return OAuthBearerLogin(token_source(endpoint, settings).token)


def _options(login: JaasEntry | None) -> Mapping[str, str]:
    if login is None:
        return {}
    login.check_module(OAUTHBEARER_LOGIN_MODULE)
    known = (*_CLIENT_OPTIONS, *UNSECURED_OPTIONS, *sorted(SSL_KEYS))
    login.check_options(*known, prefix=_EXTENSION)
    return login.options


def _credential(configured: str | None, options: Mapping[str, str], option: str) -> str:
    value = configured or options.get(option)
    if not value:
        raise ConfigError(f'the login of OAUTHBEARER needs the option "{option}" of sasl.jaas.config')
    return value


def _rules(settings: OAuthBearerSettings) -> JwtRules:
    return JwtRules(
        expected_issuer=settings.sasl_oauthbearer_expected_issuer,
        expected_audience=settings.sasl_oauthbearer_expected_audience,
        clock_skew_seconds=settings.sasl_oauthbearer_clock_skew_seconds,
        scope_claim_name=settings.sasl_oauthbearer_scope_claim_name,
        sub_claim_name=settings.sasl_oauthbearer_sub_claim_name,
    )


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context for requests to the issuer: the ``ssl.`` options of the login module, as in Kafka."""
    own = {key: value for key, value in options.items() if key in SSL_KEYS}
    if not own:
        return None
    settings = parse_config(SslSettings, own)
    return client_context(settings, load_key_material(settings), load_authorities(settings))
