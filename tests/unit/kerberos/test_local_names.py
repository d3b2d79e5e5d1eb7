"""The rule language of sasl.kerberos.principal.to.local.rules, with the examples of Kafka's own tests."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.kerberos.local_names import LocalNames, NoLocalName

RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//",
    "RULE:[2:$1-$2](kafka-.*)s/-/_/g/U",
    "RULE:[1:$1@$0](Admin.*@UP.COM)s/@.*///L",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name@REALM.COM", "service-name"),
        ("App.service-name/db@REALM.COM", "service-name"),
        ("bob@OTHER.COM", "bob"),
        ("kafka/a-b@OTHER.COM", "KAFKA_A_B"),
        ("AdminBob@UP.COM", "adminbob"),
        ("user@REALM.COM", "user"),
        ("user/host@REALM.COM", "user"),
        ("simple", "simple"),
    ],
)
def test_principal_gets_the_name_of_the_first_rule_that_applies(principal, name) -> None:
    assert LocalNames("REALM.COM", RULES).of(principal) == name


def test_first_match_alone_is_replaced_without_g() -> None:
    assert LocalNames("R", ("RULE:[1:$1]s/a/b/",)).of("banana@R") == "bbnana"


@pytest.mark.parametrize("principal", ["user@ELSEWHERE.COM", "a/b/c@REALM.COM", "", "@REALM.COM", "a@b@c"])
def test_principal_without_a_rule_has_no_name(principal) -> None:
    with pytest.raises(NoLocalName):
        LocalNames("REALM.COM").of(principal)


@pytest.mark.parametrize("rule", ["RULE:[1:$1@$0]", "RULE:[1:$1]s/a/x@y/"])
def test_name_with_a_realm_or_a_host_is_refused(rule) -> None:
    with pytest.raises(NoLocalName, match="no simple name"):
        LocalNames("R", (rule,)).of("alice@R")


@pytest.mark.parametrize(
    "rule",
    ["", "default", "RULE:", "RULE:[:$1]", "RULE:[1:$2]", "RULE:[1:$]", "RULE:[3:$1]", "RULE:[1:$1](()", "DEFAULT/X"],
)
def test_invalid_rule_is_refused_by_name(rule) -> None:
    with pytest.raises(ConfigError, match="invalid rule"):
        LocalNames("R", (rule,))
