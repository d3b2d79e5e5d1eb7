"""The readiness of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_node.broker.readiness import MAX_APPLY_DELAY_MS, NodeFacts, ReplicaFacts, node_checks

READY = NodeFacts(
    is_serving=True,
    is_stopping=False,
    is_fenced=False,
    has_session=True,
    applied_offset=10,
    known_offset=11,
    apply_delay_ms=200,
    replicas=ReplicaFacts(are_known=True),
)


def failures(facts: NodeFacts) -> dict[str, str]:
    return {check.name: check.detail for check in node_checks(facts) if not check.is_ok}


def test_node_in_sync_is_ready() -> None:
    assert failures(READY) == {}


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"is_serving": False}, "listeners"),
        ({"is_stopping": True}, "listeners"),
        ({"is_fenced": True, "has_session": False}, "fencing"),
        ({"has_session": False}, "controllers"),
        ({"apply_delay_ms": MAX_APPLY_DELAY_MS + 1}, "metadata"),
        ({"replicas": ReplicaFacts()}, "replicas"),
        ({"replicas": ReplicaFacts(True, ["orders-1"], [], 30)}, "replicas"),
    ],
)
def test_node_is_not_ready(change: dict[str, object], failed: str) -> None:
    assert list(failures(replace(READY, **change))) == [failed]  # type: ignore[arg-type]


def test_node_with_replicas_that_make_no_progress_is_ready_and_names_them() -> None:
    facts = replace(READY, replicas=ReplicaFacts(True, [], ["orders-1", "orders-2"]))
    assert failures(facts) == {}
    detail = node_checks(facts)[-1].detail
    assert detail == "2 are not in sync and make no progress: orders-1, orders-2"


def test_node_names_few_of_many_replicas() -> None:
    names = [f"t-{i}" for i in range(8)]
    facts = replace(READY, replicas=ReplicaFacts(True, names, [], 80))
    assert failures(facts) == {"replicas": "8 catch up, 80 records behind: t-0, t-1, t-2, t-3, t-4 and 3 more"}
