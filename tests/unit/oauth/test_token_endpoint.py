from __future__ import annotations

import base64
import json
import time

import pytest
from acknowledged import wait_for
from token_issuer import Issuer, serving

from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.oauth.listener import oauthbearer_listener, oauthbearer_login
from tidelog_foundation.oauth.settings import OAuthBearerSettings
from tidelog_foundation.oauth.token_lifetime import RefreshWindow
from tidelog_foundation.sasl.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CREDENTIALS = parse_jaas(f'{MODULE} clientId="app 1" clientSecret="s3:cret" scope="kafka" extension_pool="p1";')


@pytest.fixture
def endpoints():
    with serving() as found:
        yield found


def settings(endpoints, **others):
    url = endpoints.url("/token")
    return OAuthBearerSettings(sasl_oauthbearer_token_endpoint_url=url, sasl_login_retry_backoff_ms=1, **others)


def answer(token, status=200):
    return status, json.dumps({"access_token": token, "token_type": "Bearer"}).encode()


def test_token_endpoint_gives_a_token_for_client_credentials_once_per_lifetime(endpoints):
    token = Issuer().token(time.time())
    endpoints.answers["/token"] = answer(token)
    login = oauthbearer_login(settings(endpoints), CREDENTIALS)
    for _ in range(3):
        first = login.client("node-1").first()
    assert first == f"n,,\x01auth=Bearer {token}\x01pool=p1\x01\x01".encode()
    [(_, form, authorization)] = endpoints.requests
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert authorization == f"Basic {base64.b64encode(b'app+1:s3%3Acret').decode()}"


def test_token_that_is_due_is_replaced_and_stays_while_the_endpoint_fails(endpoints):
    issuer, now_s = Issuer(), time.time()
    # Due after 80 to 85 % of its life.
    old, new = (issuer.token(now_s, iat=int(now_s) - 3_300, exp=int(now_s) + 300, sub=name) for name in ("a", "b"))
    endpoints.answers["/token"] = answer(old)
    login = oauthbearer_login(
        settings(endpoints, sasl_login_refresh_min_period_seconds=0, sasl_login_retry_backoff_max_ms=10), CREDENTIALS
    )
    assert login.token().value == old
    endpoints.answers["/token"] = answer("", 500)
    assert login.token().value == old
    endpoints.answers["/token"] = answer(new)
    # The failure delays the next attempt.
    wait_for(lambda: login.token().value == new, "the new token")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ((401, b"secret"), "401"),
        ((302, b"http://127.0.0.1:1/"), "302"),
        ((200, b"{}"), "no access_token"),
        ((200, b"nonsense"), "not JSON"),
        ((200, b'{"access_token": "opaque"}'), "not a JWT"),
    ],
)
def test_login_fails_at_once_if_the_endpoint_refuses(endpoints, content, text):
    endpoints.answers["/token"] = content
    with pytest.raises(TidelogError, match=text) as failed:
        oauthbearer_login(settings(endpoints), CREDENTIALS).client("node-1")
    assert len(endpoints.requests) == 1
    assert "s3" not in str(failed.value)


def test_login_without_an_endpoint_or_credentials_is_refused(endpoints):
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        oauthbearer_login(OAuthBearerSettings(), CREDENTIALS)
    with pytest.raises(ConfigError, match="clientId"):
        oauthbearer_login(settings(endpoints), parse_jaas(f"{MODULE};"))
    with pytest.raises(ConfigError, match="ftp"):
        oauthbearer_login(OAuthBearerSettings(sasl_oauthbearer_token_endpoint_url="ftp://x/"), CREDENTIALS)


def test_listener_accepts_unsecured_tokens_only_if_an_option_says_so():
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        oauthbearer_listener(OAuthBearerSettings(), parse_jaas(f"{MODULE};"))
    unsecured = parse_jaas(f'{MODULE} unsecuredValidatorPrincipalClaimName="sub";')
    assert oauthbearer_listener(OAuthBearerSettings(), unsecured).keys is None
    with pytest.raises(ConfigError, match="both"):
        oauthbearer_listener(OAuthBearerSettings(sasl_oauthbearer_jwks_endpoint_url="file:///keys"), unsecured)
    with pytest.raises(ConfigError, match="unsecuredValidatorX"):
        oauthbearer_listener(OAuthBearerSettings(), parse_jaas(f'{MODULE} unsecuredValidatorX="1";'))


def test_token_is_replaced_within_its_window():
    window = RefreshWindow(0.8, 60_000, 300_000)
    assert window.refresh_at_ms(0, 0, 1_000_000) == 700_000
    assert window.refresh_at_ms(0, 0, 10_000_000) == 8_000_000
    assert window.refresh_at_ms(900_000, 0, 1_300_000) == 1_000_000
    assert window.refresh_at_ms(0, 0, 100_000) == 80_000
