"""The rules of Kafka's StandardAuthorizer, each by itself, and against an oracle that looks at all ACLs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.authorization import StandardRules
from tidelog_foundation.requests.acls import AclBinding, AclFilter, AclOperation, AclPermissionType, PatternType
from tidelog_foundation.requests.acls import ResourceType as Resource

ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"
HERE, THERE = "10.0.0.1", "10.0.0.2"
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OPERATIONS = (
    READ,
    WRITE,
    DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)
NAMES = ("a", "ab", "abc", "b", "*", "a*")
HOSTS = (HERE, THERE, "0:0:0:0:0:0:0:1")


def acl(name="a", principal=ALICE, operation=READ, permission=ALLOW, pattern=LITERAL, host="*", kind=Resource.TOPIC):
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def rules(*acls, **options):
    made = StandardRules(**options)
    made.set_acls(numbered(acls))
    return made


def numbered(acls):
    return {index.to_bytes(16, "big"): each for index, each in enumerate(acls)}


def allows(made, name="a", principal=ALICE, operation=READ, host=HERE):
    return made.allows(principal, host, operation, Resource.TOPIC, name)


def test_rules_deny_without_acls() -> None:
    assert not allows(rules())


def test_rules_allow_everyone_until_an_acl_of_anybody_names_the_resource() -> None:
    made = rules(acl("b", BOB), allow_if_no_acl=True)
    assert allows(made, "a")
    assert not allows(made, "b")


def test_rules_allow_a_super_user_what_is_denied() -> None:
    made = rules(acl(permission=DENY), super_users=[ALICE])
    assert allows(made)
    assert not allows(made, principal=BOB)


def test_rules_deny_before_they_allow_whatever_the_pattern() -> None:
    for denied in (acl(permission=DENY), acl("*", permission=DENY), acl("a", permission=DENY, pattern=PREFIXED)):
        assert not allows(rules(acl(), acl("*"), acl("a", pattern=PREFIXED), denied))


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_rules_imply_describe_when_allowed_but_not_when_denied(operation) -> None:
    assert allows(rules(acl(operation=operation)), operation=DESCRIBE)
    assert allows(rules(acl(operation=DESCRIBE), acl(operation=operation, permission=DENY)), operation=DESCRIBE)


def test_rules_match_a_prefix_of_the_name_alone() -> None:
    made = rules(acl("ab", pattern=PREFIXED))
    assert [allows(made, name) for name in ("a", "ab", "abc", "b")] == [False, True, True, False]


def test_rules_match_every_form_of_an_address() -> None:
    made = rules(acl(host="::1"), acl("b", host=HERE))
    assert allows(made, host="0:0:0:0:0:0:0:1")
    assert allows(made, "b", host=f"::ffff:{HERE}")


def test_rules_keep_the_effect_of_an_acl_when_another_form_of_it_is_removed() -> None:
    made = rules(acl(host="::1"), acl(host="0:0:0:0:0:0:0:1"))
    made.set_acls(numbered([acl(host="::1")]))
    assert allows(made, host="::1")


def test_rules_forget_cached_decisions_when_acls_change() -> None:
    made = rules(acl())
    assert allows(made)
    made.set_acls(numbered([acl(), acl(permission=DENY)]))
    assert not allows(made)


def test_filter_of_a_match_finds_the_acls_that_apply_to_the_name() -> None:
    acls = [acl("ab"), acl("*"), acl("a", pattern=PREFIXED), acl("abc"), acl("b", pattern=PREFIXED)]
    found = [each for each in acls if AclFilter(resource_name="ab", pattern_type=PatternType.MATCH).matches(each)]
    assert found == acls[:3]


acls_of_all_kinds = st.builds(
    acl,
    st.sampled_from(NAMES),
    st.sampled_from([ALICE, BOB, EVERYBODY, "Group:alice"]),
    st.sampled_from((*OPERATIONS, ALL)),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from((*HOSTS, "*", "::1")),
    st.sampled_from([Resource.TOPIC, Resource.GROUP]),
)


@given(
    st.lists(st.sets(acls_of_all_kinds, max_size=12), min_size=1, max_size=4),
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "*", "c", "a*b"]),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.booleans(),
)
def test_rules_decide_as_an_oracle_that_looks_at_all_acls(states, name, host, operation, allow_if_no_acl) -> None:
    made = StandardRules([BOB], allow_if_no_acl=allow_if_no_acl)
    every = set().union(*states)
    ids = {each: index.to_bytes(16, "big") for index, each in enumerate(every)}
    for state in states:
        made.set_acls({ids[each]: each for each in state})
        expected = oracle(state, name, host, operation, default=allow_if_no_acl)
        assert allows(made, name, ALICE, operation, host) == expected
        assert allows(made, name, BOB, operation, host)
        assert made.allows_any(ALICE, host, operation, Resource.TOPIC) == (
            oracle(state, "hardcode", host, operation, default=allow_if_no_acl)
            or oracle_of_type(state, host, operation)
        )


def oracle(acls, name, host, operation, *, default):
    matching = [each for each in acls if each.resource_type is Resource.TOPIC and names(each, name)]
    if not matching:
        return default
    mine = [each for each in matching if is_mine(each, host)]
    if any(each.permission_type is DENY and each.operation in (ALL, operation) for each in mine):
        return False
    implied = {ALL, operation}
    if operation is DESCRIBE:
        implied |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        implied |= {AclOperation.ALTER_CONFIGS}
    return any(each.permission_type is ALLOW and each.operation in implied for each in mine)


def oracle_of_type(acls, host, operation):
    mine = [
        each
        for each in acls
        if each.resource_type is Resource.TOPIC and is_mine(each, host) and each.operation in (ALL, operation)
    ]
    denied = [each for each in mine if each.permission_type is DENY]
    if any(each.pattern_type is LITERAL and each.resource_name == "*" for each in denied):
        return False
    return any(
        (each.pattern_type is LITERAL and each.resource_name == "*") or not any(dominates(d, each) for d in denied)
        for each in mine
        if each.permission_type is ALLOW
    )


def dominates(denied, allowed):
    if denied.pattern_type is PREFIXED:
        return allowed.resource_name.startswith(denied.resource_name)
    return allowed.pattern_type is LITERAL and denied.resource_name == allowed.resource_name


def names(each, name):
    if each.pattern_type is PREFIXED:
        return name.startswith(each.resource_name)
    return each.resource_name in ("*", name)


def is_mine(each, host):
    hosts = {host, "*"} | ({"::1"} if host == "0:0:0:0:0:0:0:1" else set())
    return each.principal in (ALICE, EVERYBODY) and each.host in hosts


def test_a_decision_does_not_depend_on_the_number_of_acls() -> None:
    many = [acl(f"topic-{i}", f"User:user-{i}", pattern=PREFIXED if i % 2 else LITERAL) for i in range(10_000)]
    few, full = rules(*many[:10], allow_if_no_acl=True), rules(*many)

    def cost(made):
        begin = time.process_time()
        for number in range(2_000):
            allows(made, f"topic-{number}")
        return time.process_time() - begin

    assert min(cost(full) for _ in range(3)) < 10 * max(cost(few), 0.001)
