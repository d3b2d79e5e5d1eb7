"""The readiness of a controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_quorum.controller.readiness import MAX_APPLY_DELAY_MS, ControllerFacts, controller_checks

FOLLOWER = ControllerFacts(
    node_id=1,
    leader_id=2,
    epoch=7,
    has_begun=False,
    applied_offset=90,
    committed_offset=100,
    has_caught_up=True,
    apply_delay_ms=10,
)
LEADER = replace(FOLLOWER, leader_id=1, has_begun=True)


def failures(facts: ControllerFacts) -> list[str]:
    return [check.name for check in controller_checks(facts) if not check.is_ok]


@pytest.mark.parametrize("facts", [FOLLOWER, LEADER, replace(FOLLOWER, apply_delay_ms=MAX_APPLY_DELAY_MS)])
def test_controller_is_ready_when_it_follows_or_leads(facts: ControllerFacts) -> None:
    assert failures(facts) == []


@pytest.mark.parametrize(
    ("facts", "failed"),
    [
        (replace(FOLLOWER, leader_id=None), ["leader"]),
        (replace(LEADER, has_begun=False), ["leader"]),
        (replace(FOLLOWER, has_caught_up=False), ["metadata"]),
        (replace(LEADER, apply_delay_ms=MAX_APPLY_DELAY_MS + 1), ["metadata"]),
    ],
)
def test_controller_is_not_ready(facts: ControllerFacts, failed: list[str]) -> None:
    assert failures(facts) == failed


def test_controller_tells_its_leader_and_position() -> None:
    details = {check.name: check.detail for check in controller_checks(FOLLOWER)}
    assert details["leader"] == "controller 2 leads in epoch 7"
    assert details["metadata"] == "applied up to offset 90, committed up to 100"
