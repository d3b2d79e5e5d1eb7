"""Names of remote topics, cycles, and the changes that a target needs."""

from __future__ import annotations

import pytest

from tidelog_mirror.patterns import NameFilter
from tidelog_mirror.policy import ReplicationPolicy, offsets_topic
from tidelog_mirror.topic_plan import (
    ALL,
    ALLOW,
    DENY,
    READ,
    WRITE,
    Setting,
    TopicAcl,
    TopicSelection,
    plan_acls,
    plan_settings,
    plan_topics,
)

DEFAULT, IDENTITY = ReplicationPolicy(), ReplicationPolicy(is_identity=True)
TOPICS = NameFilter((".*",), (r"mm2.*\.internal", r".*\.replica", "__.*"))


def selection(policy: ReplicationPolicy = DEFAULT, topics: NameFilter = TOPICS) -> TopicSelection:
    return TopicSelection(policy, "A", "B", topics)


def test_policies_name_topics_as_kafkas_do() -> None:
    assert DEFAULT.remote_topic("A", "orders") == "A.orders"
    assert IDENTITY.remote_topic("A", "orders") == "orders"
    assert IDENTITY.remote_topic("A", "heartbeats") == "A.heartbeats"
    assert DEFAULT.topic_source("A.C.orders") == "A"
    assert DEFAULT.upstream_topic("A.C.orders") == "C.orders"
    assert DEFAULT.original_topic("A.C.orders") == "orders"
    assert IDENTITY.topic_source("A.orders") is None
    assert IDENTITY.topic_source("A.heartbeats") == "A"
    assert DEFAULT.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert DEFAULT.checkpoints_topic("A") == "A.checkpoints.internal"
    assert ReplicationPolicy(separator="_", internal_separator="_").checkpoints_topic("A") == "A_checkpoints_internal"
    assert offsets_topic("A") == "mm2-offsets.A.internal"


@pytest.mark.parametrize(
    ("topic", "is_copied"),
    [
        ("orders", True),
        ("my.orders", True),
        ("B.orders", False),
        ("C.orders", True),
        ("C.B.orders", False),
        ("heartbeats", True),
        ("C.heartbeats", True),
        ("B.heartbeats", False),
        ("C.checkpoints.internal", False),
        ("mm2-offset-syncs.B.internal", False),
        ("connect-offsets-internal", False),
        ("__consumer_offsets", False),
        ("orders.replica", False),
    ],
)
def test_a_flow_copies_no_internal_topic_and_nothing_that_came_from_its_target(topic: str, is_copied: bool) -> None:
    assert selection().copies(topic) is is_copied


def test_heartbeats_are_copied_whatever_the_topics_are() -> None:
    few = selection(topics=NameFilter(("orders",)))
    assert few.copies("heartbeats")
    assert not few.copies("payments")


def test_identity_keeps_names_and_sees_no_cycle_but_that_of_heartbeats() -> None:
    identity = selection(IDENTITY)
    assert identity.copies("B.orders")
    assert not identity.copies("B.heartbeats")


def test_groups_continue_on_the_original_of_a_copy() -> None:
    assert selection().checkpoint_topic("orders") == "A.orders"
    assert selection().checkpoint_topic("B.orders") == "orders"


def test_topics_and_partitions_are_added_and_never_removed() -> None:
    changes = plan_topics(
        selection(), {"new": 3, "grown": 4, "same": 2, "__x": 1}, {"A.grown": 2, "A.same": 5, "A.gone": 1}
    )
    assert changes.created == {"A.new": 3}
    assert changes.extended == {"A.grown": 4}


def test_settings_are_set_and_removed_as_on_the_source() -> None:
    on_source = [
        Setting("retention.ms", "5", is_default=False),
        Setting("segment.bytes", "7", is_default=True),
        Setting("min.insync.replicas", "2", is_default=False),
        Setting("secret", None, is_default=False, is_sensitive=True),
        Setting("cleanup.policy", "compact", is_default=False),
    ]
    own = {"segment.bytes": "9", "cleanup.policy": "compact", "max.message.bytes": "1"}
    excluded = NameFilter((r"min\.insync\.replicas",))
    changes = plan_settings(on_source, own, excluded, has_source_defaults=False)
    assert changes == {"retention.ms": "5", "segment.bytes": None}
    changes = plan_settings(on_source, own, excluded, has_source_defaults=True)
    assert changes == {"retention.ms": "5", "segment.bytes": "7"}


def test_acls_lose_the_right_to_write() -> None:
    found = plan_acls(
        selection(),
        [
            TopicAcl("orders", "User:a", "*", READ, ALLOW),
            TopicAcl("orders", "User:a", "*", WRITE, ALLOW),
            TopicAcl("orders", "User:b", "*", WRITE, DENY),
            TopicAcl("orders", "User:c", "*", ALL, ALLOW),
            TopicAcl("__x", "User:c", "*", READ, ALLOW),
        ],
    )
    assert found == [
        TopicAcl("A.orders", "User:a", "*", READ, ALLOW),
        TopicAcl("A.orders", "User:b", "*", WRITE, DENY),
        TopicAcl("A.orders", "User:c", "*", READ, ALLOW),
    ]
