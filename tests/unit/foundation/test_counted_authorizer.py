"""The counts of an authorizer's decisions."""

from __future__ import annotations

import pytest
from own_authorizer import OwnNamesAuthorizer
from support.metric_values import values

from tidelog_foundation.authorization import Action, Authorizer, RequestOrigin
from tidelog_foundation.authorization.counted import DECISIONS, CountedAuthorizer
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.authorization.standard_authorizer import StandardAuthorizer
from tidelog_foundation.requests.acls import AclOperation, ResourceType
from tidelog_foundation.security import Principal

ROOT, BOB = (RequestOrigin(Principal("User", name), "10.0.0.1", "client", "Produce") for name in ("root", "bob"))
READ, WRITE, TOPIC, GROUP = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC, ResourceType.GROUP


def test_decisions_are_counted_by_operation_resource_type_and_outcome() -> None:
    authorizer = CountedAuthorizer(StandardAuthorizer(StandardRules(frozenset(("User:root",)))))
    listed = Action(READ, TOPIC, "hidden", log_if_denied=False)
    for origin in (ROOT, BOB, BOB):
        authorizer.authorize(origin, [Action(READ, TOPIC, "t"), Action(WRITE, GROUP, "g"), listed])
    authorizer.authorize_by_resource_type(BOB, WRITE, TOPIC)
    assert values(authorizer.families(), DECISIONS) == {
        ("read", "topic", "allowed"): 1,
        ("write", "group", "allowed"): 1,
        ("read", "topic", "denied"): 2,
        ("write", "group", "denied"): 2,
        ("write", "topic", "denied"): 1,
    }


@pytest.mark.parametrize("authorizer", [StandardAuthorizer(StandardRules(frozenset())), OwnNamesAuthorizer()])
def test_counting_changes_no_decision(authorizer: Authorizer) -> None:
    counted = CountedAuthorizer(authorizer)
    actions = [Action(READ, TOPIC, "bob-orders"), Action(READ, TOPIC, "orders")]
    assert list(counted.authorize(BOB, actions)) == list(authorizer.authorize(BOB, actions))
    assert counted.decides_by_acls is authorizer.decides_by_acls
    assert counted.authorize_by_resource_type(BOB, READ, TOPIC) is authorizer.authorize_by_resource_type(
        BOB, READ, TOPIC
    )
