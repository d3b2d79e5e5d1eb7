"""``tidelog acl`` and the admin client's operations on ACLs, on a cluster whose node has an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from authorized_cluster import authorized_cluster
from typer.testing import Result

from tidelog import AdminClient, KafkaException
from tidelog.admin import AclBinding, AclBindingFilter
from tidelog.testing import FakeCluster

READ = AclBinding("TOPIC", "t", "LITERAL", "User:a", "*", "READ", "ALLOW")
PREFIX = AclBinding("GROUP", "g-", "PREFIXED", "User:b", "10.0.0.1", "ALL", "DENY")
ALL = AclBindingFilter("ANY", None, "ANY", None, None, "ANY", "ANY")


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with authorized_cluster(named=False) as running:
        yield running


@pytest.fixture(autouse=True)
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    """Return a client; afterwards there are no ACLs."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client
        client.delete_acls([ALL])[ALL].result(10)


def test_admin_creates_describes_and_deletes_acls(admin: AdminClient) -> None:
    bad = AclBinding("TOPIC", "t", "LITERAL", "nobody", "*", "READ", "ALLOW")
    futures = admin.create_acls([READ, PREFIX, bad])
    assert [futures[READ].result(10), futures[PREFIX].result(10)] == [None, None]
    with pytest.raises(KafkaException, match="no colon is present"):
        futures[bad].result(10)
    assert admin.describe_acls(ALL).result(10) == [READ, PREFIX]
    matching = AclBindingFilter("GROUP", "g-1", "MATCH", None, None, "ANY", "ANY")
    assert admin.describe_acls(matching).result(10) == [PREFIX]
    assert admin.delete_acls([matching])[matching].result(10) == [PREFIX]
    assert admin.describe_acls(ALL).result(10) == [READ]


def listed(run_json: Callable[..., Any], *options: str) -> list[tuple[str, ...]]:
    return [tuple(acl.values()) for acl in run_json("acl", "list", *options)["acls"]]


def test_acls_are_created_listed_and_deleted(run_json: Callable[..., Any], run: Callable[..., Result]) -> None:
    created = run_json(
        *("acl", "create", "--allow-principal", "a", "--deny-principal", "Group:x", "--deny-host", "10.0.0.1"),
        *("--operation", "read,describe-configs", "--topic", "t", "--cluster"),
    )
    assert len(created["acls"]) == 8
    assert len(listed(run_json)) == 8
    expected = ("User:a", "*", "TOPIC", "t", "LITERAL", "READ", "ALLOW")
    assert expected in listed(run_json, "--topic", "t")
    assert listed(run_json, "--topic", "t", "--pattern", "match", "--allow-principal", "a", "--operation", "read") == [
        expected
    ]
    assert "User:a" in run("acl", "list").stdout
    assert expected in listed(run_json, "--principal", "a")
    assert listed(run_json, "--principal", "nobody") == []
    assert len(run_json("acl", "delete", "--cluster", "--yes")["acls"]) == 4
    assert len(listed(run_json)) == 4
    assert run("acl", "delete", "--topic", "none", "--yes").stdout == "no ACL matches\n"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("create", "--operation", "read", "--topic", "t"), "--allow-principal or --deny-principal is required"),
        (("create", "--allow-principal", "a", "--topic", "t"), "--operation is required"),
        (("create", "--allow-principal", "a", "--operation", "read"), "--topic, or another resource, is required"),
        (("create", "--allow-principal", "a", "--operation", "fly", "--topic", "t"), 'not "fly"'),
        (("create", "--allow-principal", "a", "--operation", "any", "--topic", "t"), 'not "any"'),
        (("delete", "--yes"), "name the ACLs by a resource, an operation, a principal or a host"),
    ],
)
def test_what_is_missing_or_unknown_is_named(run: Callable[..., Result], args: tuple[str, ...], text: str) -> None:
    result = run("acl", *args)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--topic", "ord*"), "ord* is the name itself; for names that begin with ord pass --pattern prefixed"),
        (("--topic", "*", "--allow-host", "db.example"), "the host db.example is not an IP address"),
        (("--topic", "ord*", "--pattern", "prefixed"), ""),
        (("--topic", "*", "--allow-host", "10.0.0.1"), ""),
    ],
)
def test_acl_that_hardly_matches_what_was_meant_is_created_with_a_warning(
    run: Callable[..., Result], args: tuple[str, ...], text: str
) -> None:
    result = run("acl", "create", "--allow-principal", "warned", "--operation", "read", *args)
    assert result.exit_code == 0
    assert text in result.stderr
    assert bool(result.stderr) is bool(text)
    assert run("acl", "delete", "--principal", "warned", "--yes").exit_code == 0
