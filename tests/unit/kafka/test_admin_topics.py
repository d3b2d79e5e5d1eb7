"""CreateTopics, DeleteTopics and CreatePartitions in all their versions, against a controller's core."""

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

TIMED_OUT = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")


def topic(name, partitions=-1, factor=-1, assignments=(), configs=()):
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(i, list(ids)) for i, ids in enumerate(assignments)],
        [CreatableTopicConfig(n, v) for n, v in configs],
    )


def create(node, *topics, version=7, validate_only=False):
    """Return {name: (error, number of partitions, replication factor)}, and the whole response."""
    request = CreateTopicsRequest(list(topics), 5_000, validate_only)
    response = node.ask(request, version, CreateTopicsResponse)
    shown = {t.name: (name_of(t.error_code), t.num_partitions, t.replication_factor) for t in response.topics}
    assert len(shown) == len(response.topics)
    return shown, response


@pytest.mark.parametrize("version", versions_of(CreateTopicsRequest))
def test_create_topics_creates_with_counts_defaults_assignments_and_settings(version):
    node = AdminNode(1, 2, 3, num_partitions=4)
    wanted = [
        topic("counts", 3, 2, configs=[("retention.ms", "10")]),
        topic("defaults"),
        topic("assigned", assignments=[(1, 2), (2, 3)]),
    ]
    shown, response = create(node, *wanted, version=version)
    has_more = version >= 5
    assert shown == {
        "counts": (None, 3, 2) if has_more else (None, -1, -1),
        "defaults": (None, 4, 1) if has_more else (None, -1, -1),
        "assigned": (None, 2, 2) if has_more else (None, -1, -1),
    }
    assert {n: len(t.partitions) for n, t in node.image.topics.items()} == {"counts": 3, "defaults": 4, "assigned": 2}
    assert node.image.partition("assigned", 1).replicas == (2, 3)
    assert node.image.config_of_topic("counts") == {"retention.ms": "10"}
    assert all(t.error_message is None and t.topic_config_error_code == 0 for t in response.topics)
    ids = {t.name: t.topic_id for t in response.topics}
    assert ids == {n: t.topic_id if version >= 7 else bytes(16) for n, t in node.image.topics.items()}


@pytest.mark.parametrize("validate_only", [True, False])
def test_create_topics_answers_with_all_settings_of_the_topic_from_version_5_on(validate_only):
    node = AdminNode(1)
    _, response = create(node, topic("t", 1, 1, configs=[("retention.ms", "10")]), validate_only=validate_only)
    [created] = response.topics
    settings = {c.name: (c.value, c.config_source, c.read_only, c.is_sensitive) for c in created.configs}
    assert settings["retention.ms"] == ("10", 1, False, False)
    assert settings["segment.bytes"] == (str(1 << 30), 5, False, False)
    assert [c.name for c in created.configs] == sorted(settings)
    assert (created.num_partitions, created.replication_factor) == (1, 1)
    assert ("t" in node.image.topics) is not validate_only
    assert (created.topic_id == bytes(16)) is validate_only


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic("there"), "TOPIC_ALREADY_EXISTS"),
        (topic("a/b"), "INVALID_TOPIC_EXCEPTION"),
        (topic("__cluster_metadata"), "INVALID_REQUEST"),
        (topic("new", 0, 1), "INVALID_PARTITIONS"),
        (topic("new", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (topic("new", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (topic("new", assignments=[(1, 7)]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("new", 1, -1, assignments=[(1,)]), "INVALID_REQUEST"),
        (topic("new", configs=[("retention.ms", "soon")]), "INVALID_CONFIG"),
        (topic("new", configs=[("retention.ms", None)]), "INVALID_CONFIG"),
        (topic("new", configs=[("no.such", "1")]), "INVALID_CONFIG"),
    ],
)
def test_create_topics_refuses_a_topic_with_its_own_error(wanted, error):
    node = AdminNode(1)
    node.create("there")
    shown, response = create(node, wanted, topic("good", 1, 1))
    assert shown == {wanted.name: (error, -1, -1), "good": (None, 1, 1)}
    refused = next(t for t in response.topics if t.error_code)
    assert refused.error_message
    assert refused.configs == []
    assert node.image.topics.keys() == {"there", "good"}


def test_create_topics_refuses_a_topic_that_is_named_twice():
    node = AdminNode(1)
    assert create(node, topic("t", 1, 1), topic("t", 2, 1))[0] == {"t": ("INVALID_REQUEST", -1, -1)}
    assert not node.image.topics


def test_create_topics_that_fails_whole_is_the_error_of_each_topic():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    shown, response = create(node, topic("a"), topic("b"))
    assert shown == {"a": ("REQUEST_TIMED_OUT", -1, -1), "b": ("REQUEST_TIMED_OUT", -1, -1)}
    assert {t.error_message for t in response.topics} == {"no controller answered"}
    assert create(AdminNode(1))[0] == {}


def delete(node, *names, ids=(), version=6, both=()):
    """Return [(name, id, error)] in an order of their own."""
    states = [
        *(DeleteTopicState(n) for n in names),
        *(DeleteTopicState(None, i) for i in ids),
        *(DeleteTopicState(*b) for b in both),
    ]
    by_names = version < 6
    request = DeleteTopicsRequest([] if by_names else states, list(names) if by_names else [], 5_000)
    response = node.ask(request, version, DeleteTopicsResponse)
    return sorted(((r.name, r.topic_id, name_of(r.error_code)) for r in response.responses), key=str)


@pytest.mark.parametrize("version", versions_of(DeleteTopicsRequest))
def test_delete_topics_deletes_by_name(version):
    node = AdminNode(1)
    topic_id = node.create("t")
    none = bytes(16)
    assert delete(node, "t", "x", version=version) == [
        ("t", topic_id if version >= 6 else none, None),
        ("x", none, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert not node.image.topics


@pytest.mark.parametrize("version", [1, 4, 5, 6])
def test_delete_topics_answers_an_empty_name_with_an_empty_name(version):
    assert delete(AdminNode(1), "", version=version) == [("", bytes(16), "UNKNOWN_TOPIC_OR_PARTITION")]


def test_delete_topics_deletes_by_id():
    node = AdminNode(1)
    topic_id, unknown = node.create("t"), b"?" * 16
    node.create("other")
    assert delete(node, ids=[topic_id, unknown]) == sorted(
        [("t", topic_id, None), (None, unknown, "UNKNOWN_TOPIC_ID")], key=str
    )
    assert node.image.topics.keys() == {"other"}


def test_delete_topics_refuses_what_is_named_twice_or_in_two_ways():
    node = AdminNode(1)
    ids = {name: node.create(name) for name in ("a", "b", "c", "d", "e")}
    none = bytes(16)
    answer = delete(
        node, "a", "b", "b", ids=[ids["a"], ids["c"], ids["c"], ids["e"]], both=[("d", ids["d"]), (None, none)]
    )
    assert answer == sorted(
        [
            ("a", none, "INVALID_REQUEST"),
            ("b", none, "INVALID_REQUEST"),
            (None, ids["c"], "INVALID_REQUEST"),
            ("d", ids["d"], "INVALID_REQUEST"),
            (None, none, "INVALID_REQUEST"),
            ("e", ids["e"], None),
        ],
        key=str,
    )
    assert node.image.topics.keys() == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("version", "error"), [(2, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")])
def test_delete_topics_says_that_deletion_is_disabled_to_those_who_know_the_error(version, error):
    node = AdminNode(1, delete_topic_enable=False)
    node.create("t")
    assert delete(node, "t", version=version) == [("t", bytes(16), error)]


def test_delete_topics_that_fails_whole_is_the_error_of_each_topic():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    unknown = b"?" * 16
    assert delete(node, "t", ids=[unknown]) == sorted(
        [("t", bytes(16), "REQUEST_TIMED_OUT"), (None, unknown, "REQUEST_TIMED_OUT")], key=str
    )


def grow(node, *topics, version=3, validate_only=False):
    wanted = [
        CreatePartitionsTopic(name, n, None if a is None else [CreatePartitionsAssignment(list(ids)) for ids in a])
        for name, n, a in topics
    ]
    response = node.ask(CreatePartitionsRequest(wanted, 5_000, validate_only), version, CreatePartitionsResponse)
    assert all((r.error_message is None) is (r.error_code == 0) for r in response.results)
    return {r.name: name_of(r.error_code) for r in response.results}


@pytest.mark.parametrize("version", versions_of(CreatePartitionsRequest))
def test_create_partitions_adds_to_topics(version):
    node = AdminNode(1, 2)
    node.create("t")
    node.create("u")
    assert grow(node, ("t", 3, None), ("u", 2, [(2,)]), version=version) == {"t": None, "u": None}
    assert len(node.image.topics["t"].partitions) == 3
    assert node.image.partition("u", 1).replicas == (2,)


def test_create_partitions_refuses_a_topic_with_its_own_error():
    node = AdminNode(1)
    for name in ("same", "none", "many", "unknown", "twice", "good"):
        node.create(name)
    answer = grow(
        node,
        ("same", 1, None),
        ("none", 2, []),
        ("many", 2, [(1,), (1,)]),
        ("unknown", 2, [(7,)]),
        ("twice", 2, None),
        ("twice", 3, None),
        ("missing", 2, None),
        ("absent", 2, []),
        ("good", 2, None),
    )
    assert answer == {
        "same": "INVALID_PARTITIONS",
        "none": "INVALID_REPLICA_ASSIGNMENT",
        "many": "INVALID_REPLICA_ASSIGNMENT",
        "unknown": "INVALID_REPLICA_ASSIGNMENT",
        "twice": "INVALID_REQUEST",
        "missing": "UNKNOWN_TOPIC_OR_PARTITION",
        "absent": "UNKNOWN_TOPIC_OR_PARTITION",
        "good": None,
    }


def test_create_partitions_that_only_validates_adds_nothing():
    node = AdminNode(1)
    node.create("t")
    assert grow(node, ("t", 3, None), validate_only=True) == {"t": None}
    assert len(node.image.topics["t"].partitions) == 1


def test_create_partitions_that_fails_whole_is_the_error_of_each_topic():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    assert grow(node, ("a", 2, None), ("b", 2, None)) == {"a": "REQUEST_TIMED_OUT", "b": "REQUEST_TIMED_OUT"}
