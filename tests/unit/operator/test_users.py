"""The rules of users as code: a user has the ACLs and quotas of its resource and no others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.admin import AclBinding
from tidelog_operator.users import UserState, changes, parse_user


def parse(**spec: Any) -> Any:
    return parse_user({"metadata": {"name": "alice"}, "spec": {"cluster": "tidelog", **spec}})


def acl(kind: str, name: str, operation: str, pattern: str = "LITERAL") -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, "ALLOW")


def test_rule_is_an_acl_for_each_operation() -> None:
    rules = [
        {
            "resource": {"type": "topic", "name": "orders", "patternType": "prefixed"},
            "operations": ["READ", "DESCRIBE"],
        },
        {"resource": {"type": "cluster"}, "operations": ["IDEMPOTENT_WRITE"]},
    ]
    assert parse(acls=rules).acls == {
        acl("TOPIC", "orders", "READ", "PREFIXED"),
        acl("TOPIC", "orders", "DESCRIBE", "PREFIXED"),
        acl("BROKER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }


def test_password_is_written_when_there_is_none_and_when_its_secret_has_changed() -> None:
    spec = parse()
    assert spec.secret == "alice"
    assert changes(spec, UserState(), "1").writes_credential
    assert changes(spec, UserState(has_credential=True, credential="1"), "2").writes_credential
    assert not changes(spec, UserState(has_credential=True, credential="2"), "2").writes_credential
    assert changes(spec, UserState(has_credential=False, credential="2"), "2").writes_credential


def test_user_with_a_certificate_has_no_password() -> None:
    spec = parse(authentication={"type": "tls"})
    assert spec.secret is None
    assert not changes(spec, UserState(), "").writes_credential
    assert changes(spec, UserState(has_credential=True), "").deletes_credential


def test_quotas_that_the_resource_does_not_name_go() -> None:
    spec = parse(quotas={"producerByteRate": 1000, "requestPercentage": 50})
    found = UserState(quotas={"consumer_byte_rate": 5.0, "producer_byte_rate": 1000.0})
    assert changes(spec, found, "").quotas == {"request_percentage": 50.0, "consumer_byte_rate": None}


_ACLS = st.frozensets(st.builds(acl, st.just("TOPIC"), st.sampled_from("abc"), st.sampled_from(["READ", "WRITE"])))


@given(_ACLS, _ACLS)
def test_changes_lead_from_any_acls_to_those_of_the_resource(wanted: frozenset[AclBinding], found: Any) -> None:
    rules = [{"resource": {"type": "topic", "name": a.name}, "operations": [a.operation.name]} for a in wanted]
    change = changes(parse(acls=rules), UserState(acls=found), "")
    assert (set(found) - set(change.removed_acls)) | set(change.added_acls) == wanted
    assert not set(change.added_acls) & set(change.removed_acls)
