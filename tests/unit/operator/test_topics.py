"""The rules of topics as code: every topic gets what its resource says, and nothing that Kafka cannot do is tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog_operator.conditions import Refusal
from tidelog_operator.topics import AddPartitions, AlterConfig, CreateTopic, TopicState, next_change, parse_topic


def parse(name: str = "orders", **spec: Any) -> Any:
    return parse_topic({"metadata": {"name": name}, "spec": {"cluster": "tidelog", **spec}})


def test_topic_has_the_name_of_its_resource_unless_it_has_another() -> None:
    assert parse().name == "orders"
    assert parse(topicName="Orders_1").name == "Orders_1"
    with pytest.raises(Refusal):
        parse(topicName="..")


def test_missing_topic_is_created_and_one_as_wanted_is_left_alone() -> None:
    spec = parse(partitions=3, replicas=2, config={"retention.ms": 1000})
    assert next_change(spec, None) == CreateTopic()
    assert next_change(spec, TopicState("id", 3, 2, {"retention.ms": "1000"})) is None


def test_existing_topic_is_adopted_whatever_its_size_if_the_resource_names_none() -> None:
    assert next_change(parse(), TopicState("id", 7, 5, {})) is None


def test_topic_gets_more_partitions_and_never_fewer() -> None:
    assert next_change(parse(partitions=4), TopicState("id", 3, 3, {})) == AddPartitions(4)
    with pytest.raises(Refusal, match=r"has 3 partitions, and spec\.partitions is 2"):
        next_change(parse(partitions=2), TopicState("id", 3, 3, {}))


def test_other_number_of_replicas_is_refused() -> None:
    with pytest.raises(Refusal, match="tidelog partition reassign"):
        next_change(parse(replicas=2), TopicState("id", 3, 3, {}))


def test_foreign_settings_go_except_those_of_reassignments() -> None:
    found = {"retention.ms": "5", "cleanup.policy": "compact", "leader.replication.throttled.replicas": "*"}
    change = next_change(parse(config={"retention.ms": 9}), TopicState("id", 1, 1, found))
    assert change == AlterConfig({"retention.ms": "9", "cleanup.policy": None})


_CONFIGS = st.dictionaries(st.sampled_from(["retention.ms", "segment.bytes", "cleanup.policy"]), st.integers(1, 3))


@given(_CONFIGS, _CONFIGS, st.integers(1, 4), st.integers(-1, 4))
def test_changes_end_with_the_topic_as_wanted(
    wanted: dict[str, int], found: dict[str, int], partitions: int, count: int
) -> None:
    assume(count not in range(partitions))
    spec = parse(config=wanted, **({"partitions": count} if count > 0 else {}))
    state = TopicState("id", partitions, 3, {key: str(value) for key, value in found.items()})
    for _ in range(3):
        match next_change(spec, state):
            case None:
                assert state.config == spec.config
                assert count <= 0 or state.partitions == count
                return
            case AddPartitions(more):
                assert more > state.partitions
                state = replace(state, partitions=more)
            case AlterConfig(values):
                merged = {**state.config, **values}
                state = replace(state, config={k: v for k, v in merged.items() if v is not None})
            case change:
                raise AssertionError(change)
    raise AssertionError("the changes do not end")
