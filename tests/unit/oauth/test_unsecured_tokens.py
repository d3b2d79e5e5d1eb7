from __future__ import annotations

import base64
import json

import pytest
from token_issuer import Issuer

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.oauth.token import TokenRefused
from tidelog_foundation.oauth.unsecured import UnsecuredValidator

NOW_S = 1_700_000_000


def token(header=None, signature="", **claims):
    parts = (header or {"alg": "none"}, {"sub": "alice", "exp": NOW_S + 60} | claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, signature))


def test_unsecured_token_gives_its_principal():
    assert UnsecuredValidator().validate(token(), NOW_S * 1_000).principal_name == "alice"


def test_unsecured_validator_uses_the_options_of_the_login_module():
    validator = UnsecuredValidator.from_options(
        {
            "unsecuredValidatorPrincipalClaimName": "name",
            "unsecuredValidatorScopeClaimName": "roles",
            "unsecuredValidatorRequiredScope": "a b",
            "unsecuredValidatorAllowableClockSkewMs": "3000",
        }
    )
    assert validator.validate(token(name="bob", roles=["a", "b"], exp=NOW_S - 2), NOW_S * 1_000).principal_name == "bob"
    with pytest.raises(TokenRefused) as refused:
        validator.validate(token(name="bob", roles="a"), NOW_S * 1_000)
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "a b")


def test_unsecured_validator_refuses_an_invalid_option():
    with pytest.raises(ConfigError, match="-1"):
        UnsecuredValidator.from_options({"unsecuredValidatorAllowableClockSkewMs": "-1"})


@pytest.mark.parametrize(
    "bad",
    [
        token(exp=NOW_S),
        token(exp=None),
        token(sub=""),
        token(iat=NOW_S + 1),
        token(nbf=NOW_S + 61),
        token(iat=NOW_S, nbf=NOW_S - 1),
        token(header={"alg": "HS256"}),
        token(signature="AAAA"),
        "a.b",
        "a.b.",
        "",
        f"{token().split('.')[0]}.W10.",
        Issuer().token(NOW_S),
    ],
)
def test_unsecured_token_that_is_invalid_is_refused(bad):
    with pytest.raises(TokenRefused):
        UnsecuredValidator().validate(bad, NOW_S * 1_000)
