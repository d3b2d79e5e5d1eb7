"""Authorizers of others, which authorizer.class.name names (KIP-504)."""

from __future__ import annotations

import importlib.metadata

import pytest
from authorized_cluster import DEADLINE_S, ROOT, authorized_cluster, settings_of
from own_authorizer import OwnNamesAuthorizer

from tidelog import AdminClient
from tidelog.admin import AclBinding, AclBindingFilter
from tidelog_foundation.authorization import StandardAuthorizer
from tidelog_foundation.authorization.settings import AuthorizerSettings
from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError

OWN = "own_authorizer:OwnNamesAuthorizer"
ALL = AclBindingFilter("ANY", None, "ANY", None, None, "ANY", "ANY")


def test_own_authorizer_decides_and_keeps_its_own_acls() -> None:
    started = OwnNamesAuthorizer.started
    with authorized_cluster({"authorizer.class.name": OWN}) as cluster:
        assert OwnNamesAuthorizer.started == started + 2
        for name in ("alice.orders", "bob.orders"):
            cluster.create_topic(name)
        with AdminClient(settings_of(cluster, "alice")) as alice:
            assert set(alice.list_topics(timeout=DEADLINE_S).topics) == {"alice.orders"}
        acl = AclBinding("TOPIC", "t", "LITERAL", "User:a", "*", "READ", "ALLOW")
        with AdminClient(settings_of(cluster, ROOT)) as root:
            root.create_acls([acl])[acl].result(DEADLINE_S)
            assert root.describe_acls(ALL).result(DEADLINE_S) == [acl]
            assert root.delete_acls([ALL])[ALL].result(DEADLINE_S) == [acl]
            assert root.describe_acls(ALL).result(DEADLINE_S) == []


def new_authorizer(**settings: str) -> object:
    raw = {key.replace("_", "."): value for key, value in settings.items()}
    return parse_config(AuthorizerSettings, raw).new_authorizer(1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own_authorizer:Missing", "cannot be loaded: module 'own_authorizer' has no attribute 'Missing'"),
        ("no_such_module:X", "cannot be loaded: No module named 'no_such_module'"),
        ("own_authorizer:NoAuthorizer", "must inherit from tidelog_foundation.authorization.Authorizer"),
        (
            "kafka.security.Old",
            "cannot be loaded: it is neither .*StandardAuthorizer nor module:Class nor",
        ),
    ],
)
def test_authorizer_that_cannot_be_loaded_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"authorizer.class.name {name} {text}"):
        new_authorizer(authorizer_class_name=name)


def test_authorizer_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("names", OWN, "tidelog.authorizers")
    found = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: found.select(**wanted))
    assert isinstance(new_authorizer(authorizer_class_name="names"), OwnNamesAuthorizer)


def test_settings_of_an_authorizer_are_checked() -> None:
    assert new_authorizer() is None
    assert isinstance(new_authorizer(authorizer_class_name=STANDARD_AUTHORIZER), StandardAuthorizer)
    with pytest.raises(ConfigError, match="nobody cannot be a super user"):
        new_authorizer(authorizer_class_name=OWN, super_users="User:nobody")
    with pytest.raises(ConfigError, match=r'super\.users.*invalid principal "bob": must be kind:name'):
        new_authorizer(super_users="User:alice;bob")
