"""ssl.principal.mapping.rules, with the examples of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.principal_mapping import PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("OU=x,CN=Some.Name,O=y", "some.name"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_mapping_applies_the_first_rule_that_matches_the_whole_name(name: str, mapped: str) -> None:
    assert PrincipalMapping(RULES).name_of(name) == mapped


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("RULE:^CN=(.*)$/$1/U", "CN=ab", "AB"),
        ("RULE:^CN=(.)(.)$/$2-$1-$12-$3/", "CN=ab", "b-a-a2-$3"),
        (r"RULE:^CN=(.*)$/\$1\/\\/", "CN=ab", "$1/\\"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=cz", r"Tkac\, Adam"),
        (r"RULE:a\/b/c/", "a/b", "c"),
        ("  , RULE: a / b /L ,,  DEFAULT  ,", " a ", " b "),
        ("RULE:,RULE:,/x/,DEFAULT", ",RULE:,", "x"),
        ("RULE:^CN=b$/b/", "CN=a", None),
        ("", "CN=a", None),
    ],
)
def test_mapping_expands_groups_escapes_and_case_as_kafka(rules: str, name: str, mapped: str | None) -> None:
    assert PrincipalMapping(rules).name_of(name) == mapped


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "DEFAULT, nonsense",
    ],
)
def test_mapping_refuses_a_malformed_rule_and_names_it(rules: str) -> None:
    with pytest.raises(ConfigError, match="invalid rule at"):
        PrincipalMapping(rules)


def test_mapping_refuses_an_invalid_pattern_and_names_it() -> None:
    with pytest.raises(ConfigError, match=r'invalid pattern "\(" of a rule'):
        PrincipalMapping("RULE:(/x/")
