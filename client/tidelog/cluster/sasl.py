"""The SASL settings of clients, with confluent-kafka's keys, and the logins made from them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidelog_foundation.config import one_of, setting
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.jaas import KRB5_LOGIN_MODULE, JaasEntry
from tidelog_foundation.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tidelog_foundation.sasl.plain import PlainLogin
from tidelog_foundation.sasl.replaceable_login import ReplaceableLogin

OAuthCallback: TypeAlias = Callable[[str], Any]
"""confluent-kafka's ``oauth_cb``: from ``sasl.oauthbearer.config`` to ``(token, expiry_s, [principal, extensions])``.

The expiry is in seconds since 1970, ``extensions`` a dict. The callback runs on a thread of the client.
"""
_SCRAM: Final = (SCRAM_SHA_256, SCRAM_SHA_512)
_MECHANISMS: Final = (PLAIN, *_SCRAM, OAUTHBEARER, GSSAPI)
_NONCE_BYTES: Final = 24
_SERVICE: Final = "kafka"
_DEFAULT: Final = "default"
_OIDC: Final = "oidc"
_BY_OIDC: Final = "sasl.oauthbearer.method=oidc"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The authentication of a client with SASL."""

    sasl_mechanisms: str | None = setting(
        None,
        f"The mechanism of SASL, with security.protocol=sasl_ssl or sasl_plaintext: {', '.join(_MECHANISMS)}.",
        one_of(*_MECHANISMS),
        aliases=("sasl.mechanism",),
    )
    sasl_username: str | None = setting(None, "The user's name, for PLAIN and SCRAM.")
    sasl_password: str | None = setting(
        None, "The user's password, for PLAIN and SCRAM.", secret=True, config_type="PASSWORD"
    )
    sasl_tokenauth: bool = setting(
        False,
        "Whether sasl.username and sasl.password are the id and the HMAC of a delegation token, for SCRAM. Java's "
        "clients have the option tokenauth of sasl.jaas.config; confluent-kafka has none.",
    )
    sasl_oauthbearer_config: str | None = setting(None, "The argument of oauth_cb.", secret=True)

    sasl_oauthbearer_method: str = setting(
        _DEFAULT,
        "The source of tokens for OAUTHBEARER: default (oauth_cb), or oidc, the endpoint of an identity provider.",
        one_of(_DEFAULT, _OIDC),
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None, "The endpoint that issues tokens for client credentials, with sasl.oauthbearer.method=oidc: an https URL."
    )
    sasl_oauthbearer_client_id: str | None = setting(
        None,
        "The client id for the token endpoint.",
        aliases=("sasl.oauthbearer.client.credentials.client.id",),
    )
    sasl_oauthbearer_client_secret: str | None = setting(
        None,
        "The client secret for the token endpoint.",
        secret=True,
        config_type="PASSWORD",
        aliases=("sasl.oauthbearer.client.credentials.client.secret",),
    )
    sasl_oauthbearer_scope: str | None = setting(None, "The scope of the tokens that the endpoint issues.")
    sasl_oauthbearer_extensions: tuple[str, ...] = setting(
        (), "SASL extensions that are sent with tokens of the endpoint: name=value,name=value (KIP-342)."
    )
    sasl_kerberos_service_name: str | None = setting(
        None, "The name of the nodes' service in Kerberos, for GSSAPI. Default: kafka."
    )
    sasl_kerberos_principal: str | None = setting(None, "The client's principal in Kerberos, for GSSAPI.")
    sasl_kerberos_keytab: str | None = setting(
        None, "The key table with the key of sasl.kerberos.principal, for GSSAPI."
    )
    https_ca_location: str | None = setting(
        None,
        "The file with the authorities of the token endpoint's certificate, in PEM. Default: those of the operating "
        "system.",
    )

    def login(self, oauth_cb: OAuthCallback | None = None) -> SaslLogin:
        """Return the credentials.

        Raises:
            ConfigError: A setting of the mechanism is missing, or one of another mechanism is given.
        """
        match self.sasl_mechanisms:
            case None:
                raise ConfigError(f"sasl.mechanisms must be set: one of {', '.join(_MECHANISMS)}")
            case "OAUTHBEARER":
                return self._bearer(oauth_cb)
            case "GSSAPI":
                return self._ticket()
            case mechanism:
                return self._named(mechanism)

    def _named(self, mechanism: str) -> SaslLogin:
        if not self.sasl_username or not self.sasl_password:
            missing = "sasl.password" if self.sasl_username else "sasl.username"
            raise ConfigError(f"sasl.mechanisms={mechanism} needs {missing}")
        if mechanism == PLAIN:
            if self.sasl_tokenauth:
                raise ConfigError("sasl.tokenauth=true needs a mechanism of SCRAM, not sasl.mechanisms=PLAIN")
            return ReplaceableLogin(PlainLogin, self.sasl_username, self.sasl_password)
        from tidelog_foundation.sasl.scram import TOKEN_AUTH, ScramLogin
        from tidelog_foundation.sasl.scram_credentials import ScramMechanism

        scram = next(each for each in ScramMechanism if each.sasl_name == mechanism)
        extensions = {TOKEN_AUTH: "true"} if self.sasl_tokenauth else {}

        def made(username: str, password: str) -> SaslLogin:
            return ScramLogin(scram, username, password, lambda: secrets.token_urlsafe(_NONCE_BYTES), extensions)

        return ReplaceableLogin(made, self.sasl_username, self.sasl_password)

    def _ticket(self) -> SaslLogin:
        options = {
            "useKeyTab": "true",
            "keyTab": _needed("sasl.mechanisms=GSSAPI", "sasl.kerberos.keytab", self.sasl_kerberos_keytab),
            "principal": _needed("sasl.mechanisms=GSSAPI", "sasl.kerberos.principal", self.sasl_kerberos_principal),
        }
        try:
            from tidelog_foundation.kerberos.library import gssapi_login
        except (ImportError, OSError) as error:
            text = "sasl.mechanisms=GSSAPI needs python-gssapi and the libraries of Kerberos"
            raise ConfigError(f"{text}: pip install 'tidelog[gssapi]'") from error
        return gssapi_login(JaasEntry(KRB5_LOGIN_MODULE, options), self.sasl_kerberos_service_name or _SERVICE)

    def _bearer(self, oauth_cb: OAuthCallback | None) -> SaslLogin:
        given = "sasl.username" if self.sasl_username else "sasl.password" if self.sasl_password else None
        if given is not None:
            raise ConfigError(f"sasl.mechanisms=OAUTHBEARER does not use {given}")
        if self.sasl_oauthbearer_method == _OIDC:
            return self._endpoint_login(oauth_cb)
        if oauth_cb is None:
            raise ConfigError("sasl.mechanisms=OAUTHBEARER needs oauth_cb, or sasl.oauthbearer.method=oidc")
        return _bearer_login(oauth_cb, self.sasl_oauthbearer_config or "")

    def _endpoint_login(self, oauth_cb: OAuthCallback | None) -> SaslLogin:
        from tidelog_foundation.oauth.http import check_url, client_tls
        from tidelog_foundation.oauth.settings import LoginSettings
        from tidelog_foundation.oauth.token_endpoint import TokenEndpoint, token_source
        from tidelog_foundation.sasl.oauthbearer import OAuthBearerLogin

        if oauth_cb is not None:
            raise ConfigError("sasl.oauthbearer.method=oidc does not use oauth_cb")
        key = "sasl.oauthbearer.token.endpoint.url"
        endpoint = TokenEndpoint(
            url=check_url(
                key,
                _needed(_BY_OIDC, key, self.sasl_oauthbearer_token_endpoint_url),
                "https",
                "http",
            ),
            client_id=_needed(_BY_OIDC, "sasl.oauthbearer.client.id", self.sasl_oauthbearer_client_id),
            client_secret=_needed(_BY_OIDC, "sasl.oauthbearer.client.secret", self.sasl_oauthbearer_client_secret),
            scope=self.sasl_oauthbearer_scope,
            extensions=_extensions(self.sasl_oauthbearer_extensions),
            tls=client_tls(self.https_ca_location),
        )
        return OAuthBearerLogin(token_source(endpoint, LoginSettings()).token)


def _needed(setting_: str, key: str, value: str | None) -> str:
    if not value:
        raise ConfigError(f"{setting_} needs {key}")
    return value


def _extensions(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(
                f'invalid value "{pair}" for configuration sasl.oauthbearer.extensions: must be name=value'
            )
        found[name.strip()] = value.strip()
    return found


def _bearer_login(oauth_cb: OAuthCallback, config: str) -> SaslLogin:
    from tidelog_foundation.sasl.oauthbearer import ClientToken, OAuthBearerLogin

    def token() -> ClientToken:
        try:
            answer = oauth_cb(config)
        except TidelogError:
            raise
        except Exception as error:  # the application's code
            text = f"oauth_cb failed: {type(error).__name__}: {error}"
            raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error
        return ClientToken(*_token_fields(answer))

    return OAuthBearerLogin(token)


def _token_fields(answer: Any) -> tuple[str, int, Mapping[str, str]]:
    """Return the token, its expiry in milliseconds since 1970 and the extensions that ``oauth_cb`` has returned.

    Raises:
        TidelogError: SASL_AUTHENTICATION_FAILED, it returned something else.
    """
    match answer:
        case (str(token), (int() | float()) as expiry_s, *rest) if len(rest) <= 2:
            extensions = rest[1] if len(rest) == 2 else None
            if extensions is None or isinstance(extensions, Mapping):
                return token, int(expiry_s * 1000), extensions or {}
    text = "oauth_cb must return (token, expiry in seconds) or (token, expiry, principal, extensions)"
    raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
