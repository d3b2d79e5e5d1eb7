"""The settings of OAUTHBEARER, with the keys and defaults of Kafka's SaslConfigs."""

from __future__ import annotations

from tidelog_foundation.config.settings import int_setting, setting
from tidelog_foundation.config.validators import at_least, between, not_empty
from tidelog_foundation.dataclass import dataclass

_URL = "An https URL; http is possible, but then anybody in the network's path can exchange the answer."


# Not slotted: the settings of servers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class LoginSettings:
    """The settings with which a client, or a node as a client of another, gets its tokens."""

    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None, f"The endpoint that issues tokens for client credentials. {_URL}", not_empty
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        None, "The client id for the token endpoint, in place of the option clientId of sasl.jaas.config.", not_empty
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        None,
        "The client secret for the token endpoint, in place of the option clientSecret of sasl.jaas.config.",
        secret=True,
        config_type="PASSWORD",
    )
    sasl_oauthbearer_scope: str | None = setting(
        None, "The scope of the requested tokens, in place of the option scope of sasl.jaas.config.", not_empty
    )
    sasl_login_connect_timeout_ms: int = int_setting(
        10_000,
        "The time for which a login waits for a connection to the token endpoint, in milliseconds.",
        at_least(1),
    )
    sasl_login_read_timeout_ms: int = int_setting(
        10_000, "The time for which a request to the token endpoint waits for data, in milliseconds.", at_least(1)
    )
    sasl_login_retry_backoff_ms: int = setting(
        100, "The pause before a second request to the token endpoint, in milliseconds. It doubles.", at_least(1)
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        10_000, "The time after which a login gives up if the token endpoint fails, in milliseconds.", at_least(1)
    )
    sasl_login_refresh_window_factor: float = setting(
        0.8, "The part of a token's lifetime after which a login requests a new one.", between(0.5, 1.0)
    )
    sasl_login_refresh_window_jitter: float = setting(
        0.05, "The largest random part of a token's lifetime that is added to that time.", between(0.0, 0.25)
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        60,
        "The time for which a new token is used at least, in seconds, if its lifetime permits.",
        between(0, 900),
        config_type="SHORT",
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        300,
        "The time before its expiry at which a token is replaced, in seconds, if its lifetime permits.",
        between(0, 3_600),
        config_type="SHORT",
    )


@dataclass(frozen=True, kw_only=True)
class OAuthBearerSettings(LoginSettings):
    """The settings with which a server validates tokens, and gets its own."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None, f"The public keys of the issuer of tokens, as a JSON Web Key Set: a file URL, or: {_URL}", not_empty
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "The time after which the keys are fetched again, in milliseconds.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, "The pause before another attempt to fetch the keys, in milliseconds. It doubles.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000,
        "The longest pause before another attempt, in milliseconds. A token with an unknown key causes a fetch at "
        "most once in this time.",
        at_least(1),
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        None, "The required claim iss of tokens; any issuer with a known key if unset.", not_empty
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (),
        "The audiences, of which a token's claim aud must have one. If empty, a token must have no audience, as in "
        "Kafka.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = int_setting(
        30, "The difference between the clocks of issuer and server that is tolerated, in seconds.", at_least(0)
    )
    sasl_oauthbearer_scope_claim_name: str = setting("scope", "The claim with a token's scopes.", not_empty)
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim with the principal's name.", not_empty)
