from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, JaasEntry, parse_jaas


def test_jaas_entry_has_the_options_of_kafkas_documentation() -> None:
    entry = parse_jaas(
        f"""{PLAIN_LOGIN_MODULE} required
            username="admin"
            password="admin-secret"  // the node's own
            user_admin="admin-secret" /* and
            its users */
            user_alice='alice-secret';"""
    )
    assert entry.module == PLAIN_LOGIN_MODULE
    assert (entry.require("username"), entry.require("password")) == ("admin", "admin-secret")
    assert entry.users() == {"admin": "admin-secret", "alice": "alice-secret"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a b=;/c\'"', "a b=;/c'"),
        ("'a\"b'", 'a"b'),
        (r'"a\"b\\c\n\101"', 'a"b\\c\nA'),
        ("bare-word_1.2", "bare-word_1.2"),
        ('""', ""),
        ("schlüssel", "schlüssel"),
    ],
)
def test_jaas_value_is_read_as_by_kafka(text: str, value: str) -> None:
    assert parse_jaas(f"Module REQUIRED password={text};").options["password"] == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "names no login module"),
        ("Module", "must be followed by one of required"),
        ("Module needed password=canary;", "must be followed by one of required"),
        ("Module required password=canary", "semicolon"),
        ("Module required password;", "has no value"),
        ("Module required password=;", '"password" has no value'),
        ('Module required canary"canary";', "has no value"),
        ("Module required =canary;", "no name"),
        ('Module required password="canary;', "does not end"),
        ("Module required a=canary a=canary;", '"a" occurs twice'),
        ("Module required a=canary; Other required b=canary;", "only one login module"),
        ("Module required password=ab/canary;", "semicolon"),
    ],
)
def test_jaas_error_names_the_fault_and_no_value(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as raised:
        parse_jaas(text)
    assert "canary" not in raised.value.message


def test_jaas_entry_hides_its_options() -> None:
    entry = parse_jaas("Module required password=canary;")
    assert "canary" not in repr(entry)


def test_jaas_entry_checks_its_module_and_options() -> None:
    entry = JaasEntry(SCRAM_LOGIN_MODULE, {"username": "alice", "tokenauth": "TRUE", "user_bob": "x"})
    assert entry.flag("tokenauth")
    assert not entry.flag("username")
    with pytest.raises(ConfigError, match=r"must be .*PlainLoginModule"):
        entry.check_module(PLAIN_LOGIN_MODULE)
    with pytest.raises(ConfigError, match='needs the option "password"'):
        entry.require("password")
    entry.check_options("username", "tokenauth", prefix="user_")
    with pytest.raises(ConfigError, match='unknown option "user_bob"'):
        entry.check_options("username", "tokenauth")
