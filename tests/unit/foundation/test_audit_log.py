"""The audit log of decisions."""

from __future__ import annotations

import logging

import pytest

from tidelog_foundation.authorization import Action, AuditLog, RequestOrigin
from tidelog_foundation.requests.acls import AclOperation, ResourceType
from tidelog_foundation.security import Principal

READ = Action(AclOperation.READ, ResourceType.TOPIC, "orders")


def origin_of(user: str) -> RequestOrigin:
    return RequestOrigin(Principal("User", user), "10.0.0.7", "billing", "FETCH")


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.authorizer")


def test_denials_in_a_loop_are_counted_and_summarized(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = AuditLog(lambda: now[0])
    for _ in range(5_000):
        log.record(origin_of("alice"), READ, is_allowed=False)
    log.record(origin_of("bob"), READ, is_allowed=False)
    assert log.counts.authorization_denied_total == 5_001
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 11
    assert lines[-1] == (
        'denied principal="User:bob" host=10.0.0.7 client_id="billing" api=FETCH operation=READ resource=TOPIC:"orders"'
    )
    now[0] = 60.0
    log.record(origin_of("alice"), READ, is_allowed=False)
    assert caplog.records[-2].getMessage() == "4990 lines like the next were suppressed"


def test_many_denied_principals_share_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(lambda: 0.0)
    for number in range(1_500):
        log.record(origin_of(str(number)), READ, is_allowed=False)
    assert len(caplog.records) == 1_010


def test_permissions_are_logged_for_administration_alone(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(lambda: 0.0)
    log.record(origin_of("alice"), READ, is_allowed=True)
    log.record(origin_of("alice"), Action(AclOperation.ALTER, ResourceType.TOPIC, "orders"), is_allowed=True)
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["allowed"]
    assert log.counts.administration_allowed_total == 1
