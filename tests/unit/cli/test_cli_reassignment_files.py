"""The files of ``tidelog partition``, and what ``--generate`` proposes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.admin import TopicPartitionReplica
from tidelog.message import TopicPartition
from tidelog_cli.partitions.assignments import read_partitions, read_reassignment, read_topics, to_json
from tidelog_cli.partitions.proposal import propose
from tidelog_foundation.errors import TidelogError

Write = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: object) -> Path:
        path = tmp_path / "f.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write_file


def test_reassignment_file_is_kafka_s(write: Write) -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/disk2"]},'
        '{"topic":"a","partition":1,"replicas":[3]}]}'
    )
    found = read_reassignment(write(text))

    assert found.assignment == {TopicPartition("a", 0): (1, 2), TopicPartition("a", 1): (3,)}
    assert found.log_dirs == {TopicPartitionReplica("a", 0, 2): "/disk2"}
    assert (found.topics, found.brokers) == (["a"], [1, 2, 3])


def test_reassignment_file_is_written_as_kafka_writes_it(write: Write) -> None:
    assignment = {TopicPartition("b", 10): (2,), TopicPartition("b", 9): (1, 3), TopicPartition("a", 0): (3, 1)}
    text = to_json(assignment)

    assert text == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,1],"log_dirs":["any","any"]},'
        '{"topic":"b","partition":9,"replicas":[1,3],"log_dirs":["any","any"]},'
        '{"topic":"b","partition":10,"replicas":[2],"log_dirs":["any"]}]}'
    )
    assert read_reassignment(write(text)).assignment == assignment


def item(**changes: object) -> dict[str, object]:
    return {"topic": "a", "partition": 0, "replicas": [1, 2]} | changes


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "it is not JSON"),
        ([], "it is not a JSON object"),
        ({"version": 2, "partitions": [item()]}, "its version is 2, not 1"),
        ({"version": 1}, 'it has no list "partitions" of objects'),
        ({"partitions": [3]}, 'it has no list "partitions" of objects'),
        ({"partitions": []}, "it names no partition"),
        ({"partitions": [{"topic": "a"}]}, 'an item without "topic" and "partition"'),
        ({"partitions": [item(partition=-1)]}, 'an item without "topic" and "partition"'),
        ({"partitions": [item(replicas=[])]}, "a-0 has no list of replicas"),
        ({"partitions": [item(replicas=["1"])]}, "a-0 has no list of replicas"),
        ({"partitions": [item(replicas=[True])]}, "a-0 has no list of replicas"),
        ({"partitions": [item(replicas=[1, 1])]}, "a-0 names a replica twice"),
        ({"partitions": [item(), item()]}, "a-0 is named twice"),
        ({"partitions": [item(log_dirs=["any"])]}, "a-0 must have as many log_dirs as replicas"),
    ],
)
def test_reassignment_file_that_is_wrong_is_refused_with_the_reason(write: Write, content: Any, problem: str) -> None:
    with pytest.raises(TidelogError) as raised:
        read_reassignment(write(content))

    assert f"f.json: {problem}" in str(raised.value)


def test_files_of_topics_and_of_partitions_are_kafka_s(write: Write) -> None:
    assert read_topics(write({"version": 1, "topics": [{"topic": "b"}, {"topic": "a"}]})) == ["b", "a"]
    wanted = {"partitions": [{"topic": "a", "partition": 1}, {"topic": "b", "partition": 0}]}
    assert read_partitions(write(wanted)) == [TopicPartition("a", 1), TopicPartition("b", 0)]
    with pytest.raises(TidelogError, match="a topic is named twice"):
        read_topics(write({"topics": [{"topic": "b"}, {"topic": "b"}]}))
    with pytest.raises(TidelogError, match="it names no topic"):
        read_topics(write({"topics": []}))
    with pytest.raises(TidelogError, match="a partition is named twice"):
        read_partitions(write({"partitions": [{"topic": "a", "partition": 1}] * 2}))


nodes = st.dictionaries(st.integers(0, 20), st.none(), min_size=1, max_size=8)


@given(nodes, st.integers(1, 40), st.integers(1, 8))
@example(dict.fromkeys(range(8)), 20, 2)
def test_proposal_spreads_replicas_and_leaders_evenly(racks: dict[int, None], partitions: int, factor: int) -> None:
    factor = min(factor, len(racks))
    proposed = propose({"t": range(partitions)}, {"t": factor}, racks)

    assert proposed.keys() == {TopicPartition("t", i) for i in range(partitions)}
    assert all(len(set(replicas)) == factor and set(replicas) <= set(racks) for replicas in proposed.values())
    replicas = Counter(b for chosen in proposed.values() for b in chosen)
    leaders = Counter(chosen[0] for chosen in proposed.values())
    assert max(leaders[b] for b in racks) - min(leaders[b] for b in racks) <= 1
    assert max(replicas[b] for b in racks) - min(replicas[b] for b in racks) <= 1


@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from("abc"), min_size=1, max_size=9),
    st.integers(1, 30),
    st.integers(1, 5),
)
def test_proposal_uses_as_many_racks_as_there_are(racks: dict[int, str], partitions: int, factor: int) -> None:
    factor = min(factor, len(racks))
    for replicas in propose({"t": range(partitions)}, {"t": factor}, racks).values():
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks.values())))


def test_proposal_spreads_many_small_topics_too() -> None:
    topics = {f"t{n}": [0] for n in range(12)}
    proposed = propose(topics, dict.fromkeys(topics, 2), dict.fromkeys([1, 2, 3, 4]))

    assert Counter(replicas[0] for replicas in proposed.values()) == dict.fromkeys([1, 2, 3, 4], 3)
    assert Counter(b for replicas in proposed.values() for b in replicas) == dict.fromkeys([1, 2, 3, 4], 6)


def test_proposal_needs_as_many_nodes_as_replicas() -> None:
    with pytest.raises(TidelogError, match="topic 't' is to have 3 replicas on 2 nodes"):
        propose({"t": [0]}, {"t": 3}, {1: None, 2: None})
